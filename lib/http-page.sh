# http-page.sh - the page at /: one file, which asks for /queue/stats every two seconds

# page_text - set `text` to the page
page_text() {
  text='<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>flatq</title>
<link rel="icon" href="data:,">
<style>
  :root { color-scheme: light dark; }
  body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
  h1 { font-size: 1.4rem; margin: 0; }
  #said { color: GrayText; margin: 0 0 1.5rem; }
  #said.bad { color: #b3261e; }
  .wide { overflow-x: auto; }
  table { border-collapse: collapse; width: 100%; }
  th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 20%, transparent); padding: .4rem .7rem; text-align: right; }
  td { font-variant-numeric: tabular-nums; }
  th { font-weight: 600; white-space: nowrap; }
  th:first-child, td:first-child { text-align: left; overflow-wrap: anywhere; }
  td.zero { color: GrayText; }
  td.alarm { color: #b3261e; font-weight: 600; }
  tfoot td { font-weight: 600; border-bottom: 0; }
</style>
</head>
<body>
<h1>flatq</h1>
<p id="said" role="status">asking &hellip;</p>
<div class="wide">
<table>
<thead><tr><th scope="col">queue</th><th scope="col">ready</th><th scope="col">in flight</th><th scope="col">delayed</th><th scope="col">buried</th>
<th scope="col">oldest</th><th scope="col">in / min</th><th scope="col">out / min</th></tr></thead>
<tbody id="queues"></tbody>
<tfoot id="sum"></tfoot>
</table>
</div>
<noscript><p>This page needs JavaScript; <a href="/queue/stats">/queue/stats</a> has the numbers.</p></noscript>
<script>
  "use strict";
  const columns = ["ready", "in_flight", "delayed", "buried", "oldest_seconds", "pushed_last_minute", "done_last_minute"];
  const said = document.getElementById("said");
  function age(seconds) {
    if (seconds < 60) return seconds + " s";
    if (seconds < 3600) return Math.floor(seconds / 60) + " min";
    if (seconds < 172800) return Math.floor(seconds / 3600) + " h";
    return Math.floor(seconds / 86400) + " d";
  }
  function cells(name, numbers) {
    const row = document.createElement("tr");
    row.insertCell().textContent = name;
    for (const column of columns) {
      const cell = row.insertCell(), value = numbers[column];
      cell.textContent = column === "oldest_seconds" ? (numbers.ready ? age(value) : "\u2013") : value.toLocaleString("en");
      if (!value) cell.className = "zero";
      else if (column === "buried") cell.className = "alarm";
    }
    return row;
  }
  function shown(queue) {
    let name = queue.group;
    try { name = decodeURIComponent(queue.group); } catch (error) { /* bytes that are no UTF-8 stay as they are */ }
    return queue.closed ? name + " (closed)" : name;
  }
  async function look() {
    try {
      const answer = await fetch(location.origin + "/queue/stats", { cache: "no-store" });
      if (!answer.ok) throw new Error("the door says " + answer.status);
      const stats = await answer.json(), sum = {};
      for (const column of columns) {
        const all = stats.queues.map((queue) => queue[column]);
        sum[column] = column === "oldest_seconds" ? Math.max(0, ...all) : all.reduce((a, b) => a + b, 0);
      }
      document.getElementById("queues").replaceChildren(...stats.queues.map((queue) => cells(shown(queue), queue)));
      document.getElementById("sum").replaceChildren(...(stats.queues.length > 1 ? [cells("all", sum)] : []));
      said.className = "";
      const many = stats.queues.length === 1 ? " queue, " : " queues, ";
      said.textContent = stats.queues.length + many + new Date(stats.time * 1000).toLocaleTimeString();
    } catch (error) {
      said.className = "bad";
      said.textContent = "no answer: " + error.message;
    }
    setTimeout(look, 2000);
  }
  look();
</script>
</body>
</html>'
}
