"""Test the laboratory itself: broken variants of the verbs (mutants), each of which must be caught
by the family that its row names.

An edit replaces a text that is there exactly once, in whichever file and however it is laid out,
or, after `FUNCTION(): `, once in that function. A word `...` stands for any text up to the next
word. Where it is not there, the verbs have changed, and the mutant is to be changed with them: that
is an error, never a pass.

A trial is a mutant: its probe, the smallest part of a family that sees it for sure, runs until the
first bad outcome. Here "good" means that the mutant was caught; "bad" means that it was not, so the
laboratory would overlook such a fault.

    >>> print(run(System(), "pop copies the slip", work=Path("/dev/shm")).outcome)
    good
"""
from __future__ import annotations

import functools
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import clients, history, pairs, power, races, trial
from .. import campaign
from ..gate import faults
from ..scenarios import ROOT, SCENARIOS, System

#: Seconds after which an operation of a broken variant in a history counts as hanging.
DEADLINE = 20.0


@dataclass(frozen=True)
class Probe:
    """Where to look. crash, reads, ends: `where` is a scenario, `what` a fault; "undisturbed": it
    goes wrong by itself. power: a scenario and a stage. history: a kind. races, clients: a name.
    model: a variant of tests/model. pairs: BASE/FIRST/SECOND. `at` is found in "COMMAND: KIND PATH
    ..." of the calls that are struck, or held. `limit`: of trials, histories, states."""

    family: str
    where: str
    what: str = ""
    limit: int = 0
    at: str = ""


@dataclass(frozen=True)
class Mutant:
    probe: Probe
    edits: tuple[tuple[str, str], ...]  # a text that is there exactly once, and its replacement


def crash(where: str, what: str = "kill") -> Probe:
    return Probe("crash", where, what)


def power_cut(where: str, what: str = "act", limit: int = 40) -> Probe:
    return Probe("power", where, what, limit)


def histories(where: str, limit: int = 40) -> Probe:
    # A history catches a broken verb by chance: measured, 3 to 8 of 12 do
    return Probe("history", where, "", limit)


def reads(where: str, at: str, what: str = "read EIO") -> Probe:
    return Probe("reads", where, what, 6, at)


def ends(where: str, at: str, what: str = "killed at its end") -> Probe:
    return Probe("ends", where, what, 6, at)


def pair(where: str, at: str) -> Probe:
    return Probe("pairs", where, "", 3, at)


def race(where: str) -> Probe:
    return Probe("races", where)


def client(where: str) -> Probe:
    return Probe("clients", where, "-k", 4)


def model(where: str) -> Probe:
    return Probe("model", where)


MUTANTS: dict[str, Mutant] = {
    # push
    'push does not sync the body': Mutant(power_cut('push'), (
        ('push_sync(): sync_paths "$q/body/$slip_id" "$q/body"', 'sync_paths "$q/body"'),
    )),
    'push does not sync body/': Mutant(power_cut('push'), (
        ('push_sync(): sync_paths "$q/body/$slip_id" "$q/body"', 'sync_paths "$q/body/$slip_id"'),
    )),
    'push does not sync wal/': Mutant(power_cut('push'), (
        ('push_sync(): sync_paths "$q/body/$slip_id" "$q/body" "$push_place"',
        'sync_paths "$q/body/$slip_id" "$q/body"'),
    )),
    'push answers before its slip is made': Mutant(crash('push'), (
        ('push_message(): ids_next || return', 'ids_next || return\n  printf \'%s\\n\' "$id"'),
        ('main(): printf \'%s\\n\' "$id${push_dup:+ dup}" || ... printed"', ''),
    )),
    'push ignores that base64 failed': Mutant(crash('push', 'ENOSPC'), (
        ('push_body(): || { set +C; ... }',
        '|| { set +C; printf "eHh4\\n" >"$q/body/$slip_id"; push_encoded=4; }'),
    )),
    'push into a closed queue is not withdrawn': Mutant(race('closed while a body is read'), (
        ('push_closed(): *"$q/closed "*) push_withdraw', '*"$q/closed "*) false'),
    )),
    'a key is entered after the slip': Mutant(crash('push -k'), (
        ('push_enter(): key_enter', ':'),
        ('push_commit(): key_confirm', 'key_enter && key_confirm'),
    )),
    'a key that a power cut has lost is not made again': Mutant(power_cut('push -k'), (
        ('check_keys_compare(): for (key in first)', 'for (key in none)'),
    )),
    'a whole body is taken for a damaged one': Mutant(power_cut('push'), (
        ('check_slips(): if (bytes[id] !=', 'if (1 || bytes[id] !='),
        ('body_look(): there "$q/body/$slip_id" || return', 'return 1'),
    )),
    'a key is not looked for': Mutant(crash('push -k again', 'undisturbed'), (
        ('push_try(): key_find_dup || return', 'key_find_dup || return\n    push_dup='),
    )),
    'a bound without the lock': Mutant(histories('bound'), (
        ('push_try(): lock_queue || return', '[ -z "$push_key" ] || lock_queue || return'),
    )),
    # take
    'pop copies the slip': Mutant(crash('pop', 'undisturbed'), (
        ('take_slip(): mv -f', 'cp'),
    )),
    'the places are listed in another order': Mutant(model('wal last'), (
        ('queue_scan(): scan_least wal "$q"/wal/* scan_least fold "$q"/fold/*', ''),
        ('queue_scan(): scan_least "head/${scan_path##*/}" "$scan_path"/* done',
        'scan_least "head/${scan_path##*/}" "$scan_path"/*\ndone\nscan_least wal '
        '"$q"/wal/*\nscan_least fold "$q"/fold/*'),
    )),
    'handing out is no try': Mutant(crash('release, too many tries', 'undisturbed'), (
        ('taken_format(): slip_tries=$((slip_tries + 1))', ''),
    )),
    'pop ignores that base64 failed': Mutant(crash('pop', 'kill one'), (
        ('body_print(): 9>&- && body_whole && return 0', '9>&-; return 0'),
    )),
    # settle, put back
    'pop settles before it delivers': Mutant(crash('pop'), (
        ('main(): body_print && door_delivered || {',
        'taken_settle && body_print && door_delivered || {'),
    )),
    'delete ignores that its rename failed': Mutant(crash('delete', 'EIO'), (
        ('message_delete(): "$q/done/$slip" || return', '"$q/done/$slip"'),
    )),
    'delete does not sync': Mutant(power_cut('delete'), (
        ('message_delete(): "$delete_syncs" "${slip_path%/*}" "$q/done" ||', ': ||'),
    )),
    'a receipt is not compared': Mutant(race('a receipt that is old'), (
        ('receipt_find(): [ "$slip_tries.$slip_nonce" = "$receipt_tries.$receipt_nonce" ]', 'true'),
    )),
    'a lease ends at once': Mutant(histories('leases'), (
        ('queue_reclaim(): lease_over "${reclaim_name##*.}"; then',
        '[ "${reclaim_name##*.}" != 000000000000 ]; then'),
    )),
    'put back without a second look for the marker': Mutant(
        race('settled while its owner is looked for'), (
        ('queue_reclaim(): ! reclaim_settled || continue', ''),
    )),
    'a signal puts back without a look for the marker': Mutant(race('a signal behind the marker'), (
        ('take_back(): && ! is_settled "$taken"', ''),
        ('take_stopped(): [ -z "$taken" ] || ! is_settled "$taken" || return 0', ''),
    )),
    'what a dead bulk taker had is put back without a try more': Mutant(
        race('too many tries of bulk takers'), (
        ('batch_putback_locked(): slip_tries=$((slip_tries + 1))', ''),
    )),
    'every owner is taken for dead': Mutant(histories('kills'), (
        ('owner_dead(): [ "$started" \\> "${1#*-}" ]', 'true'),
    )),
    'a dead owner is taken for alive': Mutant(crash('pop'), (
        ('owner_dead(): if process_started', 'return 1\n  if process_started'),
    )),
    # sweep, fold, unfold
    'the sweep removes bodies first': Mutant(model('sweep removes the body first'), (
        ('sweep_these(): { [ -z "$sweep_out$sweep_keys" ]',
        '{ [ -z "$sweep_bodies" ] || (cd "$q/body" && exec rm -f $sweep_bodies); } &&\n      { '
        '[ -z "$sweep_out$sweep_keys" ]'),
    )),
    'the sweep removes the marker first': Mutant(crash('checkpoint sweeps'), (
        ('sweep_these(): { [ -z "$sweep_out$sweep_keys" ]',
        '(cd "$q/done" && exec rm -f $sweep_names) &&\n      { [ -z "$sweep_out$sweep_keys" ]'),
    )),
    'a fold without the lock': Mutant(histories('kills'), (
        ('checkpoint(): under_lock checkpoint_locked ||',
        '{ need engine/proof; queue_recover; } && checkpoint_locked ||'),
    )),
    'a killed fold is not recovered': Mutant(crash('checkpoint folds'), (
        ('queue_recover(): || { fold_finish ... }', '|| continue'),
    )),
    'a fold removes bodies before its commit': Mutant(crash('checkpoint folds'), (
        ('fold_write(): fold_block=$q/queue/$flat_block',
        'fold_block=$q/queue/$flat_block\n  for fold_slip in "$fold_run"/*; do slip_parse '
        '"${fold_slip##*/}"; rm -f "$q/body/$slip_id"; done'),
    )),
    'a fold does not sync its file': Mutant(power_cut('checkpoint folds'), (
        ('fold_write(): sync_paths "$q/tmp/$fold_flat"', 'sync_paths'),
    )),
    'an unfold removes the flat file first': Mutant(
        crash('checkpoint after an unfold killed after the commit'), (
        ('unfold_finish(): [ -d "$q/head/$run" ] ||',
        'rm -f "$q/unfold/$1"\n  [ -d "$q/head/$run" ] ||'),
    )),
    # claims
    'settle removes segments before it renames settled.OFFSET': Mutant(
        crash('settle, two segments'), (
        ('claim_settle(): claim_ends',
        'claim_old=$claim_settled claim_settled=$claim_at\n  claim_recover || return\n  '
        'claim_settled=$claim_old\n  claim_ends'),
    )),
    'settle does not sync': Mutant(power_cut('settle'), (
        ('claim_ends(): sync_paths "$claim" &&', ''),
    )),
    'unclaim does not sync that segments are batches': Mutant(power_cut('unclaim'), (
        ('claim_back(): sync_paths "$claim" "$q/out"', ':'),
    )),
    'what a killed fold has renamed is not synced': Mutant(
        power_cut('checkpoint folds', 'kill before sync s/q/queue/', 20), (
        ('fold_finish(): sync_paths "${fold_at%/*}" "$q/queue"', ':'),
    )),
    'what a killed claim has renamed is not synced': Mutant(
        power_cut('claim', 'kill before sync s/q/claimed/me$', 100), (
        ('claim_recover(): sync_paths "$claim" || return batch_read', 'batch_read'),
    )),
    'what a killed settle has renamed is not synced': Mutant(
        power_cut('settle', 'kill before sync s/q/claimed/me$', 100), (
        ('claim_recover(): [ -z "$claim_over$claim_marks" ] || sync_paths "$claim"', ':'),
    )),
    # failed reads
    'an empty listing of a run is believed': Mutant(reads('checkpoint folds', 'ls: .* q/fold/'), (
        ('fold_finish(): names_in "$1" || return ... rmdir "$1"',
        'names_in "$1" || :\n    [ -n "$names" ] || { rm -rf "$1"'),
    )),
    'an ls that failed is believed': Mutant(reads('drain', 'ls: .* q/out/batch'), (
        ('names_in(): 9>&-) && return 0', '9>&-); return 0'),
    )),
    'a claim finds nothing where it could not look': Mutant(reads('claim', ': list q/wal$'), (
        ('bulk_choose(): take_nothing || return', 'return 66'),
    )),
    'a conf that cannot be read says nothing': Mutant(
        reads('release, too many tries', ': look q/conf'), (
        ('queue_conf(): need engine/proof; conf_read', ':'),
    )),
    "a body's end that was read in part is believed": Mutant(reads('push', ': look q/body/'), (
        ('body_size(): read -r body_end <"$q/body/$slip_id" && [ ${#body_end} -eq "$push_encoded" ]',
        'read -r body_end <"$q/body/$slip_id" || :'),
    )),
    "a key that cannot be read is nobody's": Mutant(reads('push -k again', ': look q/keys/'), (
        ('key_look(): cannot read a key" return 74', 'cannot read a key"\n  return 66'),
    )),
    'a settled batch that cannot be listed is gone': Mutant(reads('drain', 'ls: .* q/out/batch'), (
        ('batch_sweep(): names_in "$q/out" && ! named "$1" && return 0', 'return 0'),
    )),
    'a flat file that find did not come to is not there': Mutant(
        reads('checkpoint after a fold killed among the bodies', 'find: list q/queue'), (
        ('find_names(): 9>&-) && return 0', '9>&-); return 0'),
    )),
    'the sweep leaves a key that it cannot read': Mutant(
        reads('checkpoint sweeps keys', ': look q/keys/'), (
        ('sweep_these(): *) return 74 ;;', '*) ;;'),
    )),
    'a fold writes what it has of a body': Mutant(reads('checkpoint folds', 'awk: .* q/body/'), (
        ('flat_write(): if ((getline line <body) <= 0 ... { ... }', 'getline line <body'),
    )),
    'a batch has no keys where keys/ was not listed': Mutant(
        reads('settle keys', 'sh: list q/keys$'), (
        ('batch_read(): if [ ! -e "$batch_path" ]; then ... fi',
        '[ -e "$batch_path" ] || return 0'),
    )),
    'a claim that cannot be listed is none': Mutant(reads('settle', 'ls: list q/claimed/me$'), (
        ('claim_open(): names_in "$q/claimed" && ! named "$1" || { ... }', ':'),
    )),
    # how processes end
    'a rename that reports an error is taken for none': Mutant(
        ends('checkpoint folds', 'mv: exit'), (
        ('rename_path(): [ ! -e "$1" ] || return 1', 'return 1'),
    )),
    "a take's rename that reports an error is taken for none": Mutant(ends('pop', 'mv: exit'), (
        ('take_slip(): || [ -e "$q/out/$taken" ]', ''),
    )),
    "a fold's rename that reports an error is taken for none": Mutant(
        ends('checkpoint folds', 'mv: exit'), (
        ('flat_enter(): rename_path', 'mv -f'),
    )),
    'the left side of a pipe need not have finished': Mutant(
        ends('drain', 'exec .*sed', 'killed at its start'), (
        ('piped(): && [ "$piped_said" = good ]', ''),
    )),
    # two verbs side by side
    'delete is a marker': Mutant(pair('plain/delete/release', ' q/done/'), (
        ('message_delete(): slip_move "$q/done/$slip" || return',
        'true >"$q/done/$slip" || return 74'),
    )),
    'the entry of an id is not created exclusively': Mutant(
        pair('plain/push/push', 'open \\.ids/'), (
        ('ids_next(): file_new "$range/$ids_high"', 'true >"$range/$ids_high"'),
    )),
    'drop does not look for messages': Mutant(pair('empty/touch/drop', 'rename'), (
        ('main(): drop_places || {', ': || {'),
    )),
    'a find beside a drop does not wait for it': Mutant(
        pair('bare/drop/delete', 'rmdir q/buried$'), (
        ('find_names(): drop_wait [ $? -ne 69 ] || return 69', ''),
    )),
    'the lock is released once a key is entered': Mutant(
        pair('plain/push -k/push -k', 'open q/wal/'), (
        ('push_enter(): key_enter; }', 'key_enter; }\n  unlock_queue'),
    )),
    'a bulk take believes that it got all it chose': Mutant(
        pair('plain/drain/reserve', 'rename q/wal/'), (
        ('bulk_singles(): bulk_got=$#\n [ $# -eq 0 ] || { bulk_sift "$@"; return; }',
         'ids_of $bulk_names; bulk_ids=$ids; return 0'),
    )),
    'a slower take answers that nothing is there': Mutant(pair('plain/pop/pop', 'rename q/head/'), (
        ('take_message(): [ $take_code -eq 66 ] || [ $take_code -eq 69 ] || return $take_code',
        'case $scan_place in wal | head/*) return $take_code ;; esac'),
    )),
    'a claim without the lock': Mutant(pair('plain/claim/claim', 'rename q/out/.* q/claimed/'), (
        ('main(): lock_queue && claim_name_open', 'need engine/proof && claim_name_open'),
    )),
    'a kick that is slower fails': Mutant(pair('plain/kick/kick', 'rename q/buried/'), (
        ('kick_these(): 66) [ ! -e "$slip_path" ] || kick_damaged=$why ;;', '66) return 74 ;;'),
    )),
    # the door
    'an answer to a client that is gone counts': Mutant(client('gone before the answer'), (
        ('door_delivered(): [ -n "$door_inode" ] && [ -z "$door_relayed" ] ||', ''),
    )),
    'a line that was cut is obeyed': Mutant(client('cut in the line'), (
        ('line_read(): [ -n "$handler_line" ] || exit 0',
        '[ -z "$handler_line" ] || return 0; exit 0'),
    )),
    'a reset counts as the end of the input': Mutant(client('reset in the body'), (
        ('door_whole(): door_row &&', 'true ||'),
    )),
    'a dot without its newline is an end': Mutant(client('cut in the body'), (
        ('input_dotted(): if ! read', 'if false && ! read'),
    )),
    'a stated length is not looked at': Mutant(client('cut in the body'), (
        ('input_whole(): [ "$slip_size" = "$1" ] ||', 'true ||'),
    )),
}


@dataclass
class Outcome(trial.Outcome):
    family: str = "mutants"
    trials: int = 0  # up to the one that caught it
    caught_by: str = ""  # that one's line


class Stale(Exception):
    """An edit no longer applies: the verbs have changed."""


def place(lib: Path, text: str) -> tuple[Path, int, int]:
    """Where in lib/ the text is, whatever blanks and newlines part its words. Raises Stale unless
    it is there once."""
    function = re.match(r"(\w+)\(\): ", text)
    words = text[function.end() if function else 0:].split()
    parts = (".*?" if word == "..." else re.escape(word) for word in words)
    pattern = re.compile(r"\s+".join(parts), re.S)
    area = rf"^{function[1]}\(\) [{{(]\n.*?^[}})]" if function else r"\A.*\Z"
    code = {path: path.read_text() for path in sorted(lib.rglob("*")) if path.is_file()}
    found = [(path, *match.span()) for path in code
        for within in re.finditer(area, code[path], re.M | re.S)
        for match in pattern.finditer(code[path], *within.span())]
    if len(found) != 1:
        files = ", ".join(str(path.relative_to(lib.parent)) for path, _, _ in found) or "lib/"
        raise Stale(f"{len(found)} times, not once, in {files}: {text}")
    return found[0]


def edit(lib: Path, edits: Iterable[tuple[str, str]]) -> None:
    """Replace these texts. Raises Stale."""
    for old, new in edits:
        path, start, end = place(lib, old)
        text = path.read_text()
        path.write_text(text[:start] + new.strip() + text[end:])


def make(system: System, name: str, work: Path) -> System:
    """A copy of the verbs with the mutant's edits, below `work`, which is the caller's to
    remove."""
    top = work / ("mutant." + "-".join(name.split()).replace("/", ""))
    shutil.copytree(system.lib, top / "lib")
    if (ROOT / "launch").exists():
        shutil.copy(ROOT / "launch", top)
    try:
        edit(top / "lib", MUTANTS[name].edits)
    except Stale as error:
        raise Stale(f"{name}: {error}") from None
    return System(top / "lib", name)


def attempts(probe: Probe, system: System, work: Path, seed: int) -> Iterator[Any]:
    """The outcomes of the probe on a system, one after the other."""
    numbers = range(seed, seed + probe.limit)
    if probe.family in ("crash", "reads", "ends"):
        yield from _struck(probe, system, work)
    elif probe.family == "power":
        scenarios = [SCENARIOS[probe.where]]
        own = work / "power"
        for cut in power.trials(system, scenarios, probe.limit, seed, own, kinds=(probe.what,)):
            yield power.run(cut, system, own)
    elif probe.family == "history":
        for number in numbers:
            yield history.run(system, number, work, kind=probe.where, deadline=DEADLINE)
    elif probe.family == "races":
        yield races.run(system, probe.where, work)
    elif probe.family == "clients":
        for number in numbers:
            yield clients.run(system, probe.where, probe.what, number, work, patience=3)
    elif probe.family == "pairs":
        base, first, second = probe.where.split("/")
        calls = pairs.calls(system, base, first, work)
        for call in [call for call in calls if re.search(probe.at, trial.show(call))][:probe.limit]:
            yield pairs.run(pairs.Pair(base, first, second, call.seq), system, work)
    else:
        raise ValueError(f"no probe: {probe}")


def _struck(probe: Probe, system: System, work: Path) -> Iterator[Any]:
    wanted = () if probe.what == "undisturbed" else (probe.what,)
    try:
        calls = trial.calls(system, probe.where, work, faults.kinds(probe.what))
        if faults.kills(probe.what):
            calls = trial.struck(system, probe.where, work)
    except RuntimeError as error:
        yield campaign.undisturbed(probe.where, str(error))
        return
    calls = [call for call in calls if re.search(probe.at, trial.show(call))]
    for fault, point in faults.points(calls, wanted)[:probe.limit or None]:
        yield trial.run(trial.Trial(probe.where, fault, point), system, work)


def run(system: System, name: str, work: Path, seed: int = 0) -> Outcome:
    """Whether the mutant's probe catches it. Raises Stale where its edits no longer apply."""
    began, probe = time.monotonic(), MUTANTS[name].probe
    count, caught = 0, None
    with tempfile.TemporaryDirectory(prefix="mutants.", dir=work) as own:
        mutant = make(system, name, Path(own))
        for outcome in attempts(probe, mutant, Path(own), seed):
            count += 1
            if outcome.outcome == "bad":
                caught = outcome
                break
    detail = f"after {count}: {caught.detail[:300]}" if caught else f"not caught in {count} trials"
    return Outcome(name, "", count, caught.call if caught else "", probe.family,
        "good" if caught else "bad", detail, seed, round(time.monotonic() - began, 3),
        shlex.join(["mutant", f"{name}/{seed}"]), trials=count,
        caught_by=caught.replay if caught else "")


def again(line: str, system: System, work: Path) -> Outcome:
    """The trial that printed this line, once more. Raises ValueError, KeyError."""
    name, seed = shlex.split(line)[-1].rsplit("/", 1)
    return run(system, name, work, int(seed))


def _task(system: System, name: str, work: Path, seed: int) -> list[Outcome]:
    return [run(system, name, work, seed)]


def tasks(system: System, options: campaign.Options, work: Path) -> list[campaign.Task]:
    """Every mutant but those of the model (tests/laboratory/test_model.py), the longest first."""
    names = [name for name, mutant in MUTANTS.items() if mutant.probe.family != "model"]
    names.sort(key=lambda name: MUTANTS[name].probe.family not in ("history", "clients"))
    return [functools.partial(_task, system, name, work, options.seed) for name in names]
