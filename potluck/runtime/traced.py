"""A step on a CPU as the plain list of operations that it came to: no mapping and no graph of gradients.

Small models spend their time between operations, so two more things are spared. The memory of a captured step
stays where it is, hence views of it are made once and not at every step. And operations are called by torch's
own bindings, which take half of the time of calling them by their schema.
"""

import operator
from collections.abc import Callable

import torch
from torch import Tensor, fx

Run = Callable[..., object]

_aten = torch.ops.aten
_VIEWS = {  # make no memory of their own, so they can be made ahead
    _aten.alias.default: Tensor.detach,
    _aten.detach.default: Tensor.detach,
    _aten.expand.default: Tensor.expand,
    _aten.permute.default: Tensor.permute,
    _aten.select.int: torch.select,
    _aten.slice.Tensor: None,  # has no binding; always of the step's own memory
    _aten.squeeze.dim: torch.squeeze,
    _aten.t.default: torch.t,
    _aten.transpose.int: torch.transpose,
    _aten.unbind.int: torch.unbind,
    _aten.unsqueeze.default: torch.unsqueeze,
    _aten.view.default: Tensor.view,
    operator.getitem: operator.getitem,
}
_MAKERS = {_aten.ones.default, _aten.zeros.default, _aten.scalar_tensor.default, _aten.arange.default}
_BOUND = {  # the same arguments in the same places
    **{op: bound for op, bound in _VIEWS.items() if bound is not None},
    _aten._foreach_add_.List: torch._foreach_add_,
    _aten._foreach_addcmul_.Scalar: torch._foreach_addcmul_,
    _aten._log_softmax.default: torch._log_softmax,
    _aten.add.Tensor: torch.add,
    _aten.add_.Tensor: Tensor.add_,
    _aten.baddbmm.default: torch.baddbmm,
    _aten.baddbmm_.default: Tensor.baddbmm_,
    _aten.bmm.default: torch.bmm,
    _aten.clamp_min.default: torch.clamp_min,
    _aten.clone.default: torch.clone,
    _aten.copy_.default: Tensor.copy_,
    _aten.div.Tensor: torch.div,
    _aten.exp.default: torch.exp,
    _aten.gather.default: torch.gather,
    _aten.gt.Scalar: torch.gt,
    _aten.index_select.default: torch.index_select,
    _aten.mul.Scalar: torch.mul,
    _aten.mul.Tensor: torch.mul,
    _aten.mul_.Tensor: Tensor.mul_,
    _aten.neg.default: torch.neg,
    _aten.neg_.default: Tensor.neg_,
    _aten.pow.Tensor_Scalar: torch.pow,
    _aten.relu.default: torch.relu,
    _aten.scatter_add_.default: Tensor.scatter_add_,
    _aten.sub.Tensor: torch.sub,
    _aten.sum.dim_IntList: torch.sum,
    _aten.where.self: torch.where,
}


def traced(step: Run, fixed: list[Tensor], given: list[Tensor]) -> Callable[[list[Tensor]], Run]:
    """Of a step of `(*fixed, *given)`: what gives, for tensors like the `given`, the step of these.

    They and the fixed ones must stay where they are as long as the step is used; what they hold may change.
    It is run a few times, so they must not hold anything yet.
    """
    from torch.fx.experimental.proxy_tensor import make_fx  # slow to import

    try:
        whole = make_fx(step)(*fixed, *given)
        ahead, body = _parted(whole)
        body(*ahead(*fixed, *given))
    except Exception:  # what can't be traced can still be computed
        return lambda given: lambda: step(*fixed, *given)

    def bound(given: list[Tensor]) -> Run:
        views = ahead(*fixed, *given)
        return lambda: body(*views)

    return bound


def _constant(node: fx.Node) -> bool:
    """Whether it makes the same numbers every time, which nobody changes."""
    return node.target in _MAKERS and _only_read(node)


def _only_read(node: fx.Node) -> bool:
    for user in node.users:
        schema = getattr(user.target, "_schema", None)
        if user.target in _VIEWS:
            if not _only_read(user):
                return False
        elif schema is None or schema.is_mutable or any(out.alias_info for out in schema.returns):
            return False
    return True


def _parted(whole: fx.GraphModule) -> tuple[Callable[..., tuple[Tensor, ...]], Run]:
    """What is done once (views of the step's memory), and what is done at every step."""
    whole.graph.eliminate_dead_code()
    ahead, body = fx.Graph(), fx.Graph()
    early: dict[fx.Node, fx.Node] = {}
    late: list[fx.Node] = []
    for node in whole.graph.nodes:
        if node.op == "output":
            continue
        known = all(before in early for before in node.all_input_nodes)
        if node.op in ("placeholder", "get_attr") or (known and (node.target in _VIEWS or _constant(node))):
            early[node] = ahead.node_copy(node, early.__getitem__)
        else:
            late.append(node)
    needed = {before: None for node in late for before in node.all_input_nodes if before in early}
    ahead.output(tuple(early[node] for node in needed))
    copies = {node: body.placeholder(node.name) for node in needed}
    for node in late:
        copies[node] = body.node_copy(node, copies.__getitem__)
        copies[node].target = _BOUND.get(node.target, node.target)
    body.output(None)
    return fx.GraphModule(whole, ahead).forward, fx.GraphModule(whole, body).forward
