# Complete paths in an image, after IMAGE:/, without names of the host.
_diorite_paths() {
    [[ $PREFIX == *:/* ]] || return
    compset -P '\~/' && local home=$HOME/
    local word=${(Q)PREFIX} program=${~words[1]}
    local -a rests
    rests=(${(f)"$($program completions zsh --rest-of $home$word 2>/dev/null)"})
    compadd -S '' -- $word${^${(M)rests:#*/}}
    compadd -- $word${^${rests:#*/}}
    return 0
}
