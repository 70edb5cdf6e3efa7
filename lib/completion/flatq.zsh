#compdef flatq
# Completion of flatq in zsh, where its name is _flatq
local line
local -a found shown
for line in "${(@f)$(flatq --complete "${(@Q)words[2,CURRENT-1]}" "${(Q)PREFIX}" 2>/dev/null)}"; do
  [[ -z $line ]] || { found+=("${line%%$'\t'*}"); shown+=("${line/$'\t'/  -- }") }
done
# A word that ends with a colon goes on
if [[ ${#found} -eq 1 && $found[1] == *: ]]; then
  compadd -S '' -a found
else
  compadd -l -d shown -a found
fi
