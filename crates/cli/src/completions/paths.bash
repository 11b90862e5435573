
# Complete paths in an image, after IMAGE:/. Bash splits words at a colon, so the word is read from the line.
_diorite_paths() {
    local line=${COMP_LINE:0:COMP_POINT} quote="" word="" c i
    for ((i = 0; i < ${#line}; i++)); do
        c=${line:i:1}
        if [[ $quote == "'" ]]; then
            if [[ $c == "'" ]]; then quote=""; else word+=$c; fi
        elif [[ $c == "\\" ]]; then
            ((++i))
            word+=${line:i:1}
        elif [[ $quote == '"' ]]; then
            if [[ $c == '"' ]]; then quote=""; else word+=$c; fi
        elif [[ $c == [\'\"] ]]; then
            quote=$c
        elif [[ $c == [[:space:]] ]]; then
            word=""
        else
            word+=$c
        fi
    done
    if [[ $word != *:/* ]]; then
        _diorite "$@"
        return
    fi
    # No names of the host, and no space after a directory.
    compopt +o bashdefault +o default -o nospace 2>/dev/null
    local rests rest start=$word
    [[ -z $quote && $2 != *:* ]] && start=${word##*:}
    mapfile -t rests < <("${1/#"~/"/$HOME/}" completions bash --rest-of "${word/#"~/"/$HOME/}" 2>/dev/null)
    COMPREPLY=()
    for rest in "${rests[@]}"; do
        local reply=$start$rest
        if [[ -z $quote ]]; then
            printf -v reply %q "$reply"
            [[ $rest == */ ]] || reply+=" "
        fi
        COMPREPLY+=("$reply")
    done
}

complete -F _diorite_paths -o nosort -o bashdefault -o default diorite
