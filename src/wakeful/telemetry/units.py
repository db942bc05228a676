"""Sizes, times and counts as people read them."""

_SIZES = ("KiB", "MiB", "GiB", "TiB", "PiB")


def _figure(value: float) -> str:
    return f"{value:.1f}" if abs(value) < 9.95 else f"{value:.0f}"


def show_bytes(size: float) -> str:
    """Two or more significant figures: "512 B", "9.0 GiB", "61 MiB"."""
    if abs(size) < 1024:
        return f"{size:.0f} B"
    for unit in _SIZES:
        size /= 1024
        if abs(size) < 1023.5 or unit == _SIZES[-1]:  # 1023.7 would read as 1024
            break
    return f"{_figure(size)} {unit}"


def show_seconds(seconds: float) -> str:
    """ "45 ms", "4.2 s", "42 s", "4m 02s", "1h 03m"."""
    size = abs(seconds)
    if size < 0.9995:
        return f"{seconds:.0f} s" if not size else f"{_figure(1000 * seconds)} ms" if size >= 0.001 else f"{1e6 * seconds:.0f} us"
    if size < 59.5:
        return f"{_figure(seconds)} s"
    sign, whole = "-" if seconds < 0 else "", round(size)
    if whole < 3600:
        return f"{sign}{whole // 60}m {whole % 60:02}s"
    minutes = round(size / 60)
    return f"{sign}{minutes // 60}h {minutes % 60:02}m"


def counted(number: int, thing: str) -> str:
    """ "1 model", "2 models"."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
