"""Programs for atheris that throw bytes at whatever reads bytes of strangers."""
