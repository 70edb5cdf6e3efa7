# Completion of flatq in fish: `make install` puts it where fish looks
complete -c flatq -f -a '(flatq --complete (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
