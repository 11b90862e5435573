
# Complete paths in an image, after IMAGE:/, without names of the host.
function __diorite_paths
    set -l typed (commandline -ct)
    set -l word (string unescape -- $typed)
    or set word (string sub -s 2 -- $typed)
    set -l program (commandline -opc)[1]
    for rest in ($program completions fish --rest-of (string replace -r '^~/' "$HOME/" -- $word) 2>/dev/null)
        echo $word$rest
    end
end

complete -c diorite -n "string match -q '*:/*' -- (commandline -ct)" -k -f -a "(__diorite_paths)"
