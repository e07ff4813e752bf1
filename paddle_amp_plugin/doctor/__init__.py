"""``paddle-amp doctor``: what this machine and this config make of AMP.

``model`` (what is known), ``verdict`` (what it means; pure) and ``words`` (how it is said) import no Paddle. Only the
child processes that ``facts`` and ``examine`` start do (``probe``, ``self_test``): one that crashes is a line of the
report.
"""
