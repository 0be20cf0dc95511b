"""The paper's figures, tables and claims, and some beyond it: each study one module, `run(context)`."""
