"""`python -m tools.forms`: write the schemas and the page anew."""

from tools.forms.page import ROOT, files

if __name__ == "__main__":
    for name, text in files().items():
        (ROOT / name).parent.mkdir(parents=True, exist_ok=True)
        (ROOT / name).write_text(text, "utf-8")
