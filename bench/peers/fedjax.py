"""FedJAX 0.0.17: its federated averaging on its jit backend, which beat its pmap backend on two cores.

The models are plain JAX, images in the layout that XLA is quickest with. Left to itself FedJAX fills the last
batch of a client up with rows drawn again; here that batch stays partial, as everybody's (it was no slower).
"""

import fedjax
import jax
import jax.numpy as jnp
import numpy as np
from fedjax.algorithms.fed_avg import federated_averaging
from fedjax.core.optimizers import sgd

from bench.contest import Contest

if not hasattr(jax, "tree_map"):  # gone from newer JAX; FedJAX calls it by this name
    jax.tree_map = jax.tree_util.tree_map


def block(x, weight, bias, padding):
    pads = [(padding, padding)] * 2
    x = jax.lax.conv_general_dilated(x, weight, (1, 1), pads, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    x = jax.lax.reduce_window(x + bias, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return jax.nn.relu(x)


def linear(p, x):
    return x.reshape(len(x), -1) @ p[0].T + p[1]


def lenet(p, x):
    x = block(block(x, p[0], p[1], 2), p[2], p[3], 0).reshape(len(x), -1)
    x = jax.nn.relu(x @ p[4].T + p[5])
    return jax.nn.relu(x @ p[6].T + p[7]) @ p[8].T + p[9]


def channels_last(p):
    """PyTorch's weights for images whose channels come last."""
    if len(p) == 2:
        return list(p)
    flat = p[4].reshape(-1, 16, 5, 5).transpose(0, 2, 3, 1).reshape(-1, 400)
    return [p[0].transpose(2, 3, 1, 0), p[1], p[2].transpose(2, 3, 1, 0), p[3], flat, *p[5:]]


def channels_first(p):
    """The way back."""
    if len(p) == 2:
        return list(p)
    flat = p[4].reshape(-1, 5, 5, 16).transpose(0, 3, 1, 2).reshape(-1, 400)
    return [p[0].transpose(3, 2, 0, 1), p[1], p[2].transpose(3, 2, 0, 1), p[3], flat, *p[5:]]


class Rows(fedjax.ClientDataset):
    """A client's rows, in a new order every time; the last batch is as small as it is."""

    rng = np.random.default_rng(1)

    def shuffle_repeat_batch(self, hparams):
        order = self.rng.permutation(len(self))
        shuffled = fedjax.ClientDataset({k: v[order] for k, v in self.raw_examples.items()})
        return shuffled.batch(batch_size=hparams.batch_size)


def main():
    contest = Contest(__doc__)
    if contest.model not in ("lr", "lenet"):
        raise SystemExit(f"{contest.model} isn't written in JAX here")
    work, net = contest.workload, linear if contest.model == "lr" else lenet

    def loss(p, batch, key):
        log = jax.nn.log_softmax(net(p, batch["x"]))
        return -jnp.take_along_axis(log, batch["y"][:, None], 1).mean()

    x, y = np.ascontiguousarray(work.x.transpose(0, 2, 3, 1)), work.y.astype(np.int32)
    data = [Rows({"x": x[rows], "y": y[rows]}) for rows in map(work.rows, range(work.clients))]
    batches = fedjax.ShuffleRepeatBatchHParams(work.batch, num_epochs=1)
    algorithm = federated_averaging(jax.grad(loss), sgd(work.rate), sgd(1.0), batches)
    state = algorithm.init([jnp.asarray(w) for w in channels_last(contest.weights)])
    contest.start()
    for number in range(contest.total):
        cohort = work.cohort(number)
        keys = jax.random.split(jax.random.PRNGKey(number), len(cohort))
        state, _ = algorithm.apply(state, [(c, data[c], k) for c, k in zip(cohort, keys, strict=True)])
        jax.block_until_ready(state.params)
        contest.lap(sum(len(data[client]) for client in cohort))
    contest.answer(channels_first([np.asarray(w) for w in state.params]))


if __name__ == "__main__":
    main()
