"""Reports as text."""

import math

NAMES = {
    "l2": "Euclidean norm", "l1": "sum of magnitudes", "linf": "largest magnitude",
    "l21_features": "norms by feature", "l21_labels": "norms by label",
}


def report_text(report):
    """The tables of a `ComplexityReport`."""
    s = report.summary
    lines = [
        s["model"],
        f"{s['n_examples']} examples, loss {s['loss']!r} in [0, {s['max_loss']:g}], training loss "
        f"{s['training_loss']:.4g}; relative gap {s['relative_gap']:.3g}, absolute "
        f"{s['duality_gap']:.3g}, so that the weights are within {s['distance_to_optimum']:.3g} of "
        "the optimum",
        "",
        *_complexities(report),
        "",
        *_families(report),
        "",
        *_margins(report),
        "",
        *_bounds(report),
        "",
        *_held_out(report),
        "",
        *_consistency(report.consistency, report.excess_risk),
    ]
    return "\n".join(lines)


def table(header, rows):
    """Columns as wide as their widest cells, the first to the left."""
    cells = [header, *([_cell(value) for value in row] for row in rows)]
    widths = [max(len(row[j]) for row in cells) for j in range(len(header))]
    return [
        "  ".join(
            cell.ljust(width) if j == 0 else cell.rjust(width)
            for j, (cell, width) in enumerate(zip(row, widths, strict=True))).rstrip()
        for row in cells
    ]


def _cell(value):
    if isinstance(value, str):
        return value
    if isinstance(value, int):
        return str(value)
    return "-" if math.isnan(value) else f"{value:.4g}"


def _complexities(report):
    lines = []
    for name, found in report.complexities.items():
        what = {
            "parts": "a factor for each label and each pair of neighbours",
            "positions": "a factor for each position, over its label and the one before",
        }[name]
        if len(report.complexities) == 1:
            pairs = " and each edge" if "(pairs)" in found.families else ""
            what = f"a factor for each label{pairs}"
        lines += [
            f"Factors: {name} ({what})",
            f"  |F| {found.mean_factors:.4g} on average, {found.max_factors} at most; "
            f"|Y_f| {found.max_values}; N {found.n_weights}; s {found.sparsity} "
            f"({found.sparsity_row}); r_2 {found.r_2:.4g}, r_inf {found.r_inf:.4g}",
        ]
        rows = []
        for norm, each in found.norms.items():
            carlo = "-"
            if not math.isnan(each.monte_carlo):
                carlo = f"{each.monte_carlo:.4g}"
                if not math.isnan(each.standard_error):
                    carlo += f" +- {each.standard_error:.2g}"
            rows.append((
                NAMES[norm], report.summary["norms"][norm], carlo, each.closed_form, each.theorem,
                each.printed))
        lines += ["  " + line for line in table(
            ["complexity per unit of", "||w||", "Monte Carlo", "closed form", "theorem", "printed"],
            rows)]
        lines.append("")
    return lines[:-1]


def _families(report):
    rows = [
        (row["family"], row["n_weights"], row["n_nonzero"], row["l1"], row["l2"],
         f"{row['share_l1']:.1%}", row["mean_score"], row["complexity_l1"], row["complexity_l2"])
        for row in report.families
    ]
    return table(
        ["family", "weights", "non-zero", "l1", "l2", "share", "score", "R (l1)", "R (l2)"], rows)


def _margins(report):
    margins, change = report.margins, report.margin_uncertainty
    n = len(margins)
    wrong = int((margins <= 0).sum())
    sure_wrong = int((margins + change <= 0).sum())
    may_be_wrong = int((margins - change <= 0).sum())
    return [
        f"Margins: {wrong} of {n} are not above 0; at the optimum between {sure_wrong} and "
        f"{may_be_wrong} are"]


def _bounds(report):
    s = report.summary
    by = {(row["norm"], row["kind"], row["rho"]): row for row in report.bounds}
    grid = sorted({rho for _, _, rho in by})
    kinds = list(dict.fromkeys(kind for _, kind, _ in by))
    norms = list(dict.fromkeys(norm for norm, _, _ in by))
    rows = []
    for rho in grid:
        row = [f"{rho:g}"]
        for kind in kinds:
            found = by[norms[0], kind, rho]
            row += [found["empirical"],
                    f"{found['empirical_low']:.3g} to {found['empirical_high']:.3g}"]
        rows.append(row)
    header = ["rho"] + [name for kind in kinds for name in (f"{kind} loss", "at the optimum")]
    lines = ["Empirical margin losses", *("  " + line for line in table(header, rows)), ""]
    n_vacuous = sum(row["vacuous"] for row in report.bounds)
    lines.append(
        f"Margin bounds, all together with probability {1 - s['delta']:g}: {n_vacuous} of "
        f"{len(by)} are vacuous (not below {s['max_loss']:g}, the largest loss)")
    for norm in norms:
        first = by[norm, kinds[0], grid[0]]
        lines.append(
            f"  {NAMES[norm]} <= {first['radius']:.4g}: margin loss + 4 sqrt(2) / rho x "
            f"{first['complexity_per_unit']:.4g} x {first['radius']:.4g} + "
            f"{first['concentration']:.4g}")
        rows = []
        for rho in grid:
            row = [f"{rho:g}"]
            for kind in kinds:
                found = by[norm, kind, rho]
                row += [_cell(found["value"]) + ("" if found["vacuous"] else " *"),
                        found["estimate"], found["printed"]]
            rows.append(row)
        header = ["rho"] + [
            name for kind in kinds for name in (f"{kind} bound", "Monte Carlo", "printed")]
        lines += ["    " + line for line in table(header, rows)]
    if n_vacuous < len(by):
        lines.append("  * not vacuous")
    return lines


def _held_out(report):
    held = report.held_out
    if held is None:
        return ["Held-out bounds: none; give X_test and y_test for bounds to act upon"]
    confidence = f"{1 - report.summary['delta']:g}"
    lines = [
        f"Held out: {held['n_wrong']} of {held['n_examples']} examples are wrong, "
        f"{held['zero_one']:.4g}; at most {held['clopper_pearson'][1]:.4g} with probability "
        f"{confidence} (Clopper-Pearson)"]
    bound = held["empirical_bernstein"]
    if bound is not None:
        vacuous = ", vacuous" if bound["vacuous"] else ""
        lines.append(
            f"          mean loss {held['loss']:.4g}; at most {bound['value']:.4g} with "
            f"probability {confidence} (empirical Bernstein{vacuous})")
    return lines


def _consistency(found, excess):
    answer = {True: "yes", False: "no", None: "not known"}[found.consistent]
    lines = [f"Consistent: {answer}; {found.reason}"]
    if not math.isnan(found.constant) and not math.isinf(found.constant):
        lines.append(
            f"            excess risk <= {found.constant:.4g} times excess surrogate risk")
    if excess is not None:
        lines.append(
            f"            <= {excess['value']:.4g} + {found.constant:.4g} alpha / 2 ||g*||^2 of "
            f"the best scores g*, where costs are at most {excess['max_loss']:g}"
            + (": vacuous" if excess["vacuous"] else ""))
    return lines
