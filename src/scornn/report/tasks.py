"""What a reader must know of a task to read its figures: what is asked, the naive answer, and the metric."""

from scornn.report.page import words
from scornn.report.runs import Run, mapping


def explain(run: Run, *, length: bool = True) -> str:
    """A sentence or two on the task of a run, with its length; empty for a task that is not the paper's."""
    task = mapping(run.config.get("task"))
    steps = f"{task['length']:,} " if length and isinstance(task.get("length"), int) else ""
    match run.task:
        case "copying":
            return (
                f"Ten symbols of eight kinds are shown, then {steps}blanks; after a marker they are to be repeated. "
                "Who forgets them and guesses has the baseline's cross-entropy, 10 ln 8 over the number of steps. "
                "Recall is the share of the ten symbols that come back right: 0.125 by guessing, 1 at best."
            )
        case "adding":
            return (
                f"Of {steps or 'many '}numbers between 0 and 1 two are marked, and their sum is asked at the end. Who "
                "always answers 1 has the baseline's mean squared error (MSE), 1/6; 0 is perfect."
            )
        case "mnist" | "pmnist":
            order = "in one fixed random order" if task.get("permuted") or run.task == "pmnist" else "row by row"
            order = order if length else "row by row or, permuted, in one fixed random order"
            return (
                f"The 784 pixels of an image are read one at a time, {order}, and the class is asked at the end. "
                "Accuracy is the share of test images that are classified right: 0.1 by guessing, 1 at best."
            )
        case "speech":
            return (
                "From the frames of a recording up to now the next one is predicted, as log-magnitudes of 129 "
                "frequencies; who answers that it is as the present one has the baseline. The mean squared error (MSE) "
                "not padded is taken over the frames that exist; padded, it is divided by the frames of the longest "
                "recording, as the paper most likely did, and so is smaller."
            )
    return ""


def metric_words(metric: str, task: str) -> str:
    """The name of a metric as people write it; of speech it says whether it is padded."""
    return f"{words('mse')} (not padded)" if task == "speech" and metric in ("mse", "loss") else words(metric)
