// Before anything is painted, so that nothing flashes: what was chosen here, else what the system says.
try {
  const chosen = localStorage.getItem("wakeful.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {}
