"""Programs that show Locus at work. `python -m examples.demo` is the first to run."""
