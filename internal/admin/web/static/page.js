// Renews the page's parts in place, but none in which the focus is or rows are chosen.
// Without scripts the page reloads itself.
"use strict";
async function renew() {
  if (document.hidden) return;
  let failed = true;
  try {
    const answer = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(4000) });
    if (answer.ok) {
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const id of ["live", "dead"]) {
        const part = document.getElementById(id);
        if (part.contains(document.activeElement) || part.querySelector(":checked")) continue;
        part.replaceWith(fresh.getElementById(id));
      }
      document.title = fresh.title;
      failed = false;
    }
  } catch { /* the notice says it */ }
  document.getElementById("stale").hidden = !failed;
}
setInterval(renew, 5000);
