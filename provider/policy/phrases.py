"""Phrases of the policy's refusals. Pure."""


def providers(count: int) -> str:
    """Count providers in words."""
    return "1 provider" if count == 1 else f"{count} providers"


def rows(count: int) -> str:
    """Count rows in words."""
    return "one row" if count == 1 else f"all {count} rows"


def more_columns(count: int) -> str:
    """Count columns beyond those that are allowed in words."""
    return "1 other column" if count == 1 else f"{count} other columns"


def written(key: str, value: str | int) -> str:
    """Tell the analyst which setting of a job to write, and which flag sets the same."""
    shown = f'"{value}"' if isinstance(value, str) else value
    return f"Write {key} = {shown} (--{key.replace('_', '-')} {value})"
