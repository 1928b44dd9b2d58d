// Fills the list of versions from versions.js, which is a script so that it also loads from a disk.
"use strict";
(() => {
  const list = document.getElementById("site-version");
  const versions = window.gpuprofVersions;
  if (!list || !versions) return;
  list.replaceChildren(
    ...versions.map(({ version, newest }) => {
      const own = version === list.dataset.version;
      return new Option(newest ? `${version} (newest)` : version, version, own, own);
    }),
  );
  list.addEventListener("change", () => {
    const chosen = versions.find(({ version }) => version === list.value);
    const page = chosen.pages.includes(list.dataset.page) ? list.dataset.page : "index.html";
    window.location.href = `${list.dataset.root}${chosen.version}/${page}`;
  });
})();
