"""Developer mode: every case as a test of pytest, plugin and check in one process.

``pytest --pyargs dougong_conformance.developer --plugin NAME -k rope -x --pdb``
"""
