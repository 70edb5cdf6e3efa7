# Completion of flatq in fish
complete -c flatq -f -a '(flatq --complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
