"""Broken variants of the verbs (mutants): what is changed in a copy of lib/, and which families must detect it.

An edit replaces a text that is there exactly once, in whichever file and however it is laid out, or, after `FUNCTION(): `, once in that function.
A short text in a function outlives most changes. Where it is not there, the verbs have changed,
and the mutant is to be changed with them: that is an error, never a pass. A probe is the smallest part of a family that sees the mutant for sure.
"""
from __future__ import annotations

import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..scenarios import ROOT, System

FAMILIES = ("crash", "double", "power", "history", "races", "clients", "reads", "ends", "pairs", "model")


@dataclass(frozen=True)
class Probe:
    """Where to look. crash: `where` is a scenario, `what` a fault; "undisturbed": it goes wrong by itself. double: a scenario and the
    second verb. power: a scenario and a stage. history: a kind. races, clients: a name. model: a variant of tests/model. reads, ends: a
    scenario and a fault. pairs: BASE/FIRST/SECOND. Of these three, `at` is found in "COMMAND: KIND PATH ..." of the calls that are struck, or held.
    `limit`: of trials, histories, states."""

    family: str
    where: str
    what: str = ""
    limit: int = 0
    at: str = ""


@dataclass(frozen=True)
class Mutant:
    """`must`: the family that has to detect it, and where; `also`: others that detect it, each run by `make test-all`."""

    edits: tuple[tuple[str, str], ...]  # a text that is there exactly once, and its replacement
    must: Probe
    also: tuple[Probe, ...] = ()

    @property
    def probes(self) -> tuple[Probe, ...]:
        return self.must, *self.also


def crash(where: str, what: str = "kill") -> Probe:
    return Probe("crash", where, what)


def power(where: str, what: str = "act", limit: int = 40) -> Probe:
    return Probe("power", where, what, limit)


def history(where: str, limit: int = 12) -> Probe:
    return Probe("history", where, "", limit)


def model(where: str) -> Probe:
    return Probe("model", where)


def race(where: str) -> Probe:
    return Probe("races", where)


def reads(where: str, at: str, what: str = "read EIO", limit: int = 6) -> Probe:
    return Probe("reads", where, what, limit, at)


def ends(where: str, at: str, what: str = "killed at its end", limit: int = 6) -> Probe:
    return Probe("ends", where, what, limit, at)


def pair(where: str, at: str, limit: int = 3) -> Probe:
    return Probe("pairs", where, "", limit, at)


_SYNCED = 'push_sync(): "$q/body/$slip_id" "$q/body" "$push_place"'
_SWEEP_OUT = '''{ [ -z "$sweep_out$sweep_keys" ] || (cd "$q" && exec rm -f $sweep_out $sweep_keys 9>&9) 2>/dev/null; } &&
      sync_paths "$q/out" "$q/keys" &&
'''
_SWEEP_BODIES = '''      { [ -z "$sweep_bodies" ] || (cd "$q/body" && exec rm -f $sweep_bodies 9>&9) 2>/dev/null; } &&
'''
_WAL_FIRST = '  scan_least wal "$q"/wal/*\n  scan_least fold "$q"/fold/*\n'
_HEAD_LAST = '    scan_least "head/${scan_path##*/}" "$scan_path"/*\n  done\n}\n'

MUTANTS: dict[str, Mutant] = {
    # push
    "push does not sync the body": Mutant(
        ((_SYNCED, '"$q/body" "$push_place"'),),
        power("push"), (model("body is not synced"),)),
    "push does not sync body/": Mutant(
        ((_SYNCED, '"$q/body/$slip_id" "$push_place"'),),
        power("push"), (model("body's directory is not synced"),)),
    "push does not sync wal/": Mutant(
        ((_SYNCED, '"$q/body/$slip_id" "$q/body"'),),
        power("push"), (model("wal is not synced"),)),
    "push answers before its slip is made": Mutant(
        (("  ids_next || return $?\n", "  ids_next || return $?\n  printf '%s\\n' \"$id\"\n"),
         ("    printf '%s\\n' \"$id${push_dup:+ dup}\"\n", "")),
        crash("push"), (model("ack before slip"),)),
    "push ignores that base64 failed": Mutant(
        (('2>/dev/null >"$q/body/$slip_id" || { set +C; [ "$push_begun" != new ] || push_begun=\'\'; disk_failed "$q/body" "queue \'$queue\'"; return $?; }',
          '2>/dev/null >"$q/body/$slip_id" || :'),),
        crash("push", "ENOSPC")),
    "push into a closed queue is not withdrawn": Mutant(
        (('push_stands(): push_withdraw && { why="queue \'$queue\' is closed"; return 69; }', ":"),),
        race("closed while a body is read")),
    "a key is entered after the slip": Mutant(
        (('  [ -z "$push_key" ] || key_enter\n', "  :\n"),
         ('  [ "$slip_key" = - ] || key_sure\n', '  [ "$slip_key" = - ] || { key_enter && key_sure; }\n')),
        crash("push -k"), (model("key after slip"),)),
    "a key is not looked for": Mutant(
        (("      key_taken || return $?\n", "      :\n"),),
        crash("push -k again", "undisturbed"), (history("kills"),)),
    "a bound without the lock": Mutant(
        (("  while :; do\n    lock_queue || return $?\n", '  while :; do\n    [ -n "$push_key" ] && { lock_queue || return $?; }\n'),),
        history("bound"), (model("no lock"),)),
    # take
    "pop copies the slip": Mutant(
        (('moved "$q/$scan_place/$scan_name" "$q/out/$taken"', 'cp "$q/$scan_place/$scan_name" "$q/out/$taken"'),),
        crash("pop", "undisturbed"), (history("kills"),)),
    "the places are listed in another order": Mutant(
        ((_WAL_FIRST, ""), (_HEAD_LAST, _HEAD_LAST.removesuffix("}\n") + _WAL_FIRST + "}\n")),
        model("wal last")),
    "handing out is no try": Mutant(
        (("  slip_tries=$((slip_tries + 1)) slip_nonce=$nonce\n", "  slip_nonce=$nonce\n"),),
        crash("release, too many tries", "undisturbed")),
    "pop ignores that base64 failed": Mutant(
        (('base64 -d "$q/body/$slip_id" 2>/dev/null 9>&- && return 0', 'base64 -d "$q/body/$slip_id" 2>/dev/null 9>&-; return 0'),),
        crash("pop", "kill one")),
    # settle, put back
    "pop settles before it delivers": Mutant(
        (("body_print && door_delivered || {", "taken_settle && body_print && door_delivered || {"),),
        crash("pop"), (Probe("double", "reserve", "pop"), history("kills"))),
    "delete ignores that its rename failed": Mutant(
        (('  slip_move "$q/done/$slip" || return $?\n', '  slip_move "$q/done/$slip"\n'),),
        crash("delete", "EIO")),
    "delete does not sync": Mutant(
        (('  sync_paths "${slip_path%/*}" "$q/done" || ', "  : || "),),
        power("delete"), (model("delete is not synced"),)),
    "a receipt is not compared": Mutant(
        (('[ "$slip_tries.$slip_nonce" = "$receipt_tries.$receipt_nonce" ] ||', "true ||"),),
        race("a receipt that is old"), (history("leases"), model("stale receipt"))),
    "a lease ends at once": Mutant(
        (('elif lease_over "$slip_deadline"; then', 'elif [ "$slip_deadline" != 000000000000 ]; then'),),
        history("leases")),
    "put back without a second look for the marker": Mutant(
        (('      ! reclaim_settled || continue\n', ""),),
        race("settled while its owner is looked for"), (model("no second look"),)),
    "a signal puts back without a look for the marker": Mutant(
        (('  [ -n "$taken" ] && [ ! -e "$q/done/$taken" ] || return 0\n', '  [ -n "$taken" ] || return 0\n'),
         ('  [ -z "$taken" ] || [ ! -e "$q/done/$taken" ] || return 0\n', "")),
        race("a signal behind the marker"), (model("take back looks for no marker"),)),
    "what a dead bulk taker had is put back without a try more": Mutant(
        (("      slip_path=$batch_path slip_tries=$((slip_tries + 1))\n", "      slip_path=$batch_path\n"),),
        race("too many tries of bulk takers")),
    "whoever owns is dead": Mutant(
        (('    [ "$started" \\> "${1#*-}" ]\n', "    true\n"),),
        history("kills")),
    "whoever is dead owns": Mutant(
        (('    [ -n "$started_over" ] || { [ ! -e "$FLATQ_PROC/${1%-*}" ] && need engine/proof && absent "$FLATQ_PROC/${1%-*}"; }\n', "    false\n"),),
        crash("pop"), (history("kills"),)),
    # sweep, fold, unfold
    "the sweep removes bodies first": Mutant(
        ((_SWEEP_OUT + _SWEEP_BODIES, _SWEEP_BODIES.lstrip() + "      " + _SWEEP_OUT),),
        model("sweep removes the body first")),
    "the sweep removes the marker first": Mutant(
        ((_SWEEP_OUT, '(cd "$q/done" && exec rm -f $sweep_names 9>&9) &&\n      ' + _SWEEP_OUT),),
        crash("checkpoint sweeps"), (model("sweep removes the marker first"),)),
    "a fold without the lock": Mutant(
        (("&& under_lock checkpoint_locked", "&& { need engine/proof; queue_recover; } && checkpoint_locked"),),
        history("kills")),
    "a killed fold is not recovered": Mutant(
        (('|| { fold_finish "$q/fold/$recover_run" || return $?; continue; } ;;', "|| continue ;;"),),
        crash("checkpoint folds"), (model("no recovery"),)),
    "a fold removes bodies before its commit": Mutant(
        (('    moved "$q/tmp/$fold_flat" "$fold_block/$fold_flat"', '    unfold_undo "$fold_run" &&\n    moved "$q/tmp/$fold_flat" "$fold_block/$fold_flat"'),),
        crash("checkpoint after a fold killed before its file"), (model("fold removes bodies first"),)),
    "a fold does not sync its file": Mutant(
        (('sync_paths "$q/tmp/$fold_flat" "$fold_run"', 'sync_paths "$fold_run"'),),
        power("checkpoint folds"), (model("flat file is not synced"),)),
    "an unfold removes the flat file first": Mutant(
        (('  [ -d "$q/head/$run" ] || moved', '  rm -f "$q/unfold/$1" 9>&9\n  [ -d "$q/head/$run" ] || moved'),),
        crash("checkpoint after an unfold killed after the commit"), (model("unfold removes first"),)),
    # the push journal, claims
    "the journal's sweep takes the living for dead": Mutant(
        (('journal_sweep(): owner_dead "$journal_pid-$journal_time" || { journal_free=; continue; }', ":"),
         ('push_unmade(): && owner_dead "$journal_pid-$journal_time"', "")),
        race("swept while a body is read")),
    "a push does not note that its slip comes": Mutant(
        (("push_slip(): && printf 'slip\\n' >>\"$journal\"", "&& printf '' >>\"$journal\""),),
        crash("checkpoint after a push killed with its slip", "kill")),
    "settle removes before it says so": Mutant(
        (('  moved "$claim/settled.$claim_settled" "$claim/settled.$claim_at"',
          '  claim_old=$claim_settled claim_settled=$claim_at\n  claim_recover || return $?\n  claim_settled=$claim_old\n'
          '  moved "$claim/settled.$claim_settled" "$claim/settled.$claim_at"'),),
        race("segments that are settled together"), (model("settle sweeps first"),)),
    "settle does not sync": Mutant(
        (('sync_paths "$claim" || { why="queue \'$queue\': cannot sync"; return 74; }\n  claim_settled=$claim_at\n', "claim_settled=$claim_at\n"),),
        power("settle"), (model("settle is not synced"),)),
    "unclaim does not sync that segments are batches": Mutant(
        (('  if ! sync_paths "$claim" "$q/out"; then', "  if ! :; then"),),
        power("unclaim")),
    "what a killed fold has renamed is not synced": Mutant(
        (('sync_paths "${fold_at%/*}" "$q/queue" ||', ": ||"),),
        power("checkpoint folds", "kill before sync s/q/queue/", 20)),
    "what a killed claim has renamed is not synced": Mutant(
        (('sync_paths "$claim" || { why="queue \'$queue\': cannot sync"; return 74; }\n segment_sweep "$claim/$segment"', 'segment_sweep "$claim/$segment"'),),
        power("claim", "kill before sync s/q/claimed/me$", 100)),
    "what a killed settle has renamed is not synced": Mutant(
        (('[ -z "$claim_over$claim_marks" ] || sync_paths "$claim" ||', ": ||"),),
        power("settle", "kill before sync s/q/claimed/me$", 100)),
    # failed reads
    "an empty listing of a run is believed": Mutant(
        (('names_in "$1" || return $?\n    # The run seems empty: only rmdir proves that it is\n    [ -n "$names" ] || { rmdir "$1"',
          'names_in "$1" || :\n    [ -n "$names" ] || { rm -rf "$1"'),),
        reads("checkpoint folds", "ls: .* q/fold/")),
    "whether ls has read all does not count": Mutant(
        (('names=$({ ls -q "$1" && printf /; } 2>/dev/null 9>&-) || names=', 'names=$({ ls -q "$1"; printf /; } 2>/dev/null 9>&-)'),),
        reads("drain", "ls: .* q/out/batch")),
    "a claim finds nothing where it could not look": Mutant(
        (('      nothing_ready || return $?\n', '      return 66\n'),),
        reads("claim", ": list q/wal$")),
    "a conf that cannot be read says nothing": Mutant(
        (("*' conf '*) need engine/proof; conf_read || return $? ;;", "*' conf '*) ;;"),),
        reads("release, too many tries", ": look q/conf")),
    "the end of a body is what was read of it": Mutant(
        (('{ read -r body_end <"$1" && [ ${#body_end} -eq "$size" ]; } 2>/dev/null', '{ read -r body_end <"$1" || :; } 2>/dev/null'),),
        reads("push", ": look q/body/")),
    "a key that cannot be read is nobody's": Mutant(
        (('key_look(): || { [ -e "$q/keys/$1" ] || { key_seen=; return 66; }; key_id=; }', "|| return 66"),),
        reads("push -k again", ": look q/keys/")),
    "a settled batch that cannot be listed is gone": Mutant(
        (('{ names_in "$q/out" && ! named "$1" && return 0; why="queue \'$queue\': cannot list out/$1"; return 74; }', 'return 0'),),
        reads("drain", "ls: .* q/out/batch")),
    "a flat file that find did not come to is not there": Mutant(
        (("9>&-) && case $names in\n    lock | *'\nlock')", '9>&-); case $names in\n    *)'),),
        reads("checkpoint after a fold killed among the bodies", "find: list q/queue")),
    "the sweep leaves a key that it cannot read": Mutant(
        (('  74) return 74 ;;\n  esac\n}\n\n', '  esac\n}\n'),),
        reads("checkpoint sweeps keys", ": look q/keys/")),
    "a fold writes what it has of a body": Mutant(
        (('if ((getline line <body) <= 0 || length(line) != int(($8 + 2) / 3) * 4) { bad = 1; exit }', 'getline line <body'),),
        reads("checkpoint folds", "awk: .* q/body/")),
    "a batch has no keys where keys/ was not listed": Mutant(
        (('  if [ ! -e "$batch_path" ]; then\n    names_in "$q/keys" || return $?\n    [ -n "$names" ] || return 0\n  fi\n', '  [ -e "$batch_path" ] || return 0\n'),),
        reads("settle keys", "sh: list q/keys$")),
    "a claim that cannot be listed is none": Mutant(
        (('names_in "$q/claimed" && ! named "$1" || { why="queue \'$queue\': cannot list claimed/$1"; return 74; }', ":"),),
        reads("settle", "ls: list q/claimed/me$")),
    # how processes end
    "a rename that failed has not been": Mutant(
        (('  [ ! -e "$1" ] && [ -e "$2" ]\n', '  return 1\n'),),
        ends("checkpoint folds", "mv: exit")),
    "a take's rename that failed has not been": Mutant(
        (('moved "$q/$scan_place/$scan_name" "$q/out/$taken"', 'mv -f "$q/$scan_place/$scan_name" "$q/out/$taken" 2>/dev/null'),),
        ends("pop", "mv: exit")),
    "a fold's rename that failed has not been": Mutant(
        (('moved "$q/tmp/$fold_flat" "$fold_block/$fold_flat" ||', 'mv -f "$q/tmp/$fold_flat" "$fold_block/$fold_flat" ||'),),
        ends("checkpoint folds", "mv: exit")),
    "what came of a left side is all of it": Mutant(
        (('[ "$bulk_said" = good ] && return 0', 'return 0'),),
        ends("drain", "exec .*awk", "killed at its start")),
    # two verbs side by side
    "delete is a marker": Mutant(
        (('  slip_move "$q/done/$slip" || return $?\n', '  { true >"$q/done/$slip"; } 2>/dev/null || return 74\n'),),
        pair("plain/delete/release", " q/done/")),
    "an id is whose who writes it": Mutant(
        (('      journal=$range/$ids_high\n      set -C\n', '      journal=$range/$ids_high\n'),),
        pair("plain/push/push", r"open \.ids/")),
    "drop does not look what is there": Mutant(
        (("    drop_places || {", "    : || {"),),
        pair("empty/touch/drop", "rename")),
    "a find beside a drop does not wait for it": Mutant(
        (("    drop_wait\n    [ $? -ne 69 ] || return 69\n", ""),),
        pair("bare/drop/delete", "rmdir q/buried$")),
    "a key is entered, and the lock let go": Mutant(
        (('  [ -z "$push_key" ] || key_enter\n', '  [ -z "$push_key" ] || key_enter\n  unlock_queue\n'),),
        pair("plain/push -k/push -k", "open q/wal/")),
    "a bulk take has what it chose": Mutant(
        (('  set -- $names\n  bulk_got=$#\n  [ $# -ne 0 ] || { rmdir "$q/out/$batch" 2>/dev/null; return 75; }\n', ''),),
        pair("plain/drain/pop", "rename q/wal/")),
    "who is slower finds nothing there": Mutant(
        (('take_of_queue(): take_found\n take_code=$?', 'take_found\n take_code=$?\n case $scan_place in wal | head/*) return $take_code ;; esac'),),
        pair("plain/pop/pop", "rename q/head/")),
    "a claim without the lock": Mutant(
        (('  lock_queue || die $? "$why"\n  claim_name_open', '  need engine/proof\n  claim_name_open'),),
        pair("plain/claim/claim", "rename q/out/.* q/claimed/")),
    "a kick that is slower fails": Mutant(
        (("    # RACE: another process was faster: go on with the next\n    66) ;;\n", "    66) return 74 ;;\n"),),
        pair("plain/kick/kick", "rename q/buried/")),
    # the door
    "a client that is gone has had its answer": Mutant(
        (('[ -n "$door_inode" ] && [ -z "$door_relayed" ] || return 0', "return 0"),),
        Probe("clients", "gone before the answer", "-k", 4)),
    "a line that was cut is a line": Mutant(
        (('    [ -n "$handler_line" ] || exit 0\n', '    [ -z "$handler_line" ] || return 0; exit 0\n'),),
        Probe("clients", "cut in the line", "-k", 4)),
    "a reset is an end": Mutant(
        (('    door_row && { door_ncat_lives ||', '    true || { door_ncat_lives ||'),),
        Probe("clients", "reset in the body", "-k", 4)),
    "a stated length is not looked at": Mutant(
        (('[ -z "$1" ] || [ "$size" = "$1" ] ||', "true ||"),),
        Probe("clients", "cut in the body", "-k", 4)),
}


class Stale(Exception):
    """An edit no longer applies: the verbs have changed."""


def place(lib: Path, text: str) -> tuple[Path, int, int]:
    """Where in lib/ the text is, whatever blanks and newlines part its words. Raises Stale unless it is there once."""
    function = re.match(r"(\w+)\(\): ", text)
    pattern = re.compile(r"\s+".join(map(re.escape, text[function.end() if function else 0:].split())))
    within = re.compile(rf"^{function[1]}\(\) [{{(]\n.*?^[}})]" if function else r"\A.*\Z", re.M | re.S)
    code = {path: path.read_text() for path in sorted(lib.rglob("*")) if path.is_file()}
    found = [(path, *match.span()) for path in code for area in within.finditer(code[path]) for match in pattern.finditer(code[path], *area.span())]
    if len(found) != 1:
        raise Stale(f"{len(found)} times, not once, in {', '.join(str(path.relative_to(lib.parent)) for path, _, _ in found) or 'lib/'}: {text}")
    return found[0]


def make(system: System, name: str, work: Path) -> System:
    """A copy of the verbs with the mutant's edits, below `work`, which is the caller's to remove; made once for each `work`."""
    top = work / ("mutant." + "-".join(name.split()).replace("/", ""))
    if not top.exists():
        shutil.copytree(system.lib, top / "lib")
        if (ROOT / "launch").exists():
            shutil.copy(ROOT / "launch", top)
        for old, new in MUTANTS[name].edits:
            try:
                path, start, end = place(top / "lib", old)
            except Stale as error:
                raise Stale(f"{name}: {error}") from None
            text = path.read_text()
            path.write_text(text[:start] + new.strip() + text[end:])
    return System(top / "lib", name)
