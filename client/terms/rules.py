"""Reasons why a provider would refuse a job, by its stated terms: the provider's own code decides on these rules.

So a job that fits here is refused there only if the policy changed, if budget was spent meanwhile, or for a reason that
no terms state, such as the form of the rows.
"""

from dpspca.common.errors import BudgetExceededError, DpspcaError, InvalidDataError, RefusedError
from dpspca.common.job import Bounds, Budget, JobSpec, StatedCap, Terms, columns_digest
from dpspca.common.names import PartyName
from dpspca.common.privacy import UNIT, epsilon_within, format_down, format_up, root_down
from dpspca.provider.ledger import Quotas
from dpspca.provider.policy import Cap, JobRequest, Range, Rules


def refusals(terms: Terms, job: JobRequest) -> list[RefusedError]:
    """Return everything for which this provider would refuse a job, or nothing."""
    found = [*_columns(terms, job.spec)]
    if terms.refused:
        what = f"The provider admits no job on '{terms.data_set}' at the moment ({terms.refused})."
        found.append(RefusedError(what, "Ask its operator."))
    rules = rules_of(terms)
    found += rules.refusals(job)
    return found or [*_over_what_is_left(terms, job), *_too_large(rules.quotas, job)]


def rules_of(terms: Terms) -> Rules:
    """Return the stated rules as a policy has them, or refuse rules that no policy can have.

    A provider may state anything. The lifetime is not stated, and is not a rule for one job.
    """
    try:
        return _rules(terms)
    except (DpspcaError, TypeError) as problem:  # TypeError: a quota that this version does not know
        raise InvalidDataError(
            f"The terms that {terms.party.name} signed contradict themselves: {problem!s:.300}",
            "Ask the other providers only, and tell the operator of this one.",
        ) from None


def _rules(terms: Terms) -> Rules:
    stated, analyst = terms.conditions, PartyName.parse(terms.analyst).name
    return Rules(
        data_set=terms.data_set,
        analysts=(analyst,),
        unit=stated.unit,
        rows_per_person=stated.rows_per_person,
        methods=stated.methods,
        centering=stated.centering,
        explained_variance=stated.explained_variance,
        columns=stated.columns,
        norm_bound=_range(stated.norm_bound),
        minimum_providers=stated.minimum_providers,
        lifetime=_budget(stated.per_analyst or stated.per_job),
        per_job=_budget(stated.per_job),
        mean_bound=_range(stated.mean_bound) if stated.mean_bound else None,
        accounting=stated.accounting,
        unproven=stated.unproven,
        dictionary=stated.dictionary_required,
        quotas=Quotas(**stated.quotas),
    )


def _columns(terms: Terms, spec: JobSpec) -> list[RefusedError]:
    """Refuse columns other than those of the data set: a coordinator sends such a job to no provider."""
    if spec.dictionary is not None:  # then the job's columns are features of the dictionary, and may be fewer
        if spec.dictionary == terms.dictionary_digest:
            return []
        what = f"The job names another dictionary than the one of '{terms.data_set}'."
        return [RefusedError(what, f"Use the dictionary with the digest {terms.dictionary_digest or 'none'}.")]
    remedy = "Describe the columns as they are on offer."
    if spec.schema.dimension != terms.dimension:
        what = f"The job has {spec.schema.dimension} columns, but '{terms.data_set}' has {terms.dimension}."
        return [RefusedError(what, remedy)]
    named = columns_digest(spec.schema)
    if named and terms.columns_digest and named != terms.columns_digest:
        what = f"The job's columns have other names, or another order, than those of '{terms.data_set}'."
        return [RefusedError(what, remedy)]
    return []


def _over_what_is_left(terms: Terms, job: JobRequest) -> list[RefusedError]:
    """Refuse a job that costs more than is left for this analyst."""
    try:
        plan = job.plan
        price = plan.price
    except DpspcaError as problem:
        return [RefusedError(problem.what, problem.remedy)]
    if price.is_within(terms.left):
        return []
    delta = job.spec.budget.delta
    asked = f"mu = {format_up(price.mu, 4)} (epsilon {format_up(plan.loss.epsilon(delta), 4)})"
    left_mu = format_down(root_down(terms.left.units * UNIT), 4)
    left = f"mu = {left_mu} (epsilon {format_down(epsilon_within(terms.left, delta), 4)})"
    part = " of the part of delta that is kept for noise as implemented" if price.units <= terms.left.units else ""
    what = (
        f"The job costs {asked}, and {left} is left for you on '{terms.data_set}', at delta {delta:g}: too "
        f"little{part}."
    )
    return [BudgetExceededError(what, "Ask for a smaller epsilon or delta, or ask the steward.")]


def is_too_large(terms: Terms, job: JobRequest) -> bool:
    """Tell whether the answers of a job are more than this provider keeps, whatever else it would refuse."""
    return bool(_too_large(rules_of(terms).quotas, job))


def _too_large(quotas: Quotas, job: JobRequest) -> list[RefusedError]:
    """Refuse a job whose answers alone are more than a provider keeps for one analyst."""
    needed, most = job.plan.answer_bytes, quotas.largest_answers
    if needed <= most:
        return []
    what = f"The job's answers take {needed:,} bytes, and the provider keeps at most {most:,} for one analyst."
    return [RefusedError(what, "Use fewer columns, or a method with smaller answers (auto: matrix = false).")]


def _range(of: Bounds) -> Range:
    return Range(of.least, of.most)


def _budget(of: StatedCap) -> Budget:
    if of.approximate_delta:
        return Cap(of.epsilon, of.delta, of.approximate_delta)
    return Budget(of.epsilon, of.delta)
