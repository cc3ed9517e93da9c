"""What the torch tests share: stretching pairs of inputs as far as they go."""

import pytest


@pytest.fixture(scope="session")
def largest_stretch():
    """The largest |f(x) - f(z)| / |x - z| found among random pairs and by gradient ascent."""
    torch = pytest.importorskip("torch")

    def lengths(values):
        return values.flatten(1).norm(dim=1).reshape(-1, *[1] * (values.ndim - 1))

    def long_enough(step):
        """Steps of at least 0.01: in shorter ones the rounding of f(x) would show."""
        length = lengths(step).clamp_min(1e-300)
        return step / length * length.clamp_min(0.01)

    def ratios(function, x, step):
        there, here = function(torch.cat([x + step, x])).chunk(2)
        return (there - here).flatten(1).norm(dim=1) / step.flatten(1).norm(dim=1)

    def search(function, shape, seed=0, n_pairs=24, n_steps=12):
        generator = torch.Generator().manual_seed(seed)
        x, step = torch.randn(2, n_pairs, *shape, dtype=torch.float64, generator=generator)
        sizes = torch.logspace(-3, 1, n_pairs, dtype=torch.float64)
        step = long_enough(step * sizes.reshape(-1, *[1] * len(shape)))
        largest = float(ratios(function, x, step).detach().max())
        for _ in range(n_steps):
            x, step = x.detach().requires_grad_(), long_enough(step.detach()).requires_grad_()
            found = ratios(function, x, step)
            largest = max(largest, float(found.detach().max()))
            if not found.requires_grad:
                break
            up_x, up_step = torch.autograd.grad(found.sum(), [x, step], allow_unused=True)
            length = lengths(step.detach())
            for value, up in ((x, up_x), (step, up_step)):
                if up is not None:
                    value.data += 0.5 * length * up / lengths(up).clamp_min(1e-300)
        return largest

    return search
