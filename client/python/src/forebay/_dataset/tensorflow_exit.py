"""Ends the iterators of `tf.data` that read a stream when the process exits. Imports no tensorflow.

A derived dataset reads ahead in a thread of `tf.data`, which calls Python for every batch. If it does so while the
interpreter shuts down, the process can hang. Functions of `atexit` run before that.
"""

from __future__ import annotations

import gc
import weakref
from typing import Any

from .elements import Elements

# By identity: the list of its references is copied while threads of `tf.data` add to it.
_live: weakref.WeakValueDictionary[int, Elements[Any]] = weakref.WeakValueDictionary()
_has_ended = False


def track(elements: Elements[Any]) -> Elements[Any]:
    """Return the batches, which `end_iterators` will end; after it, those of another repetition end at once."""
    _live[id(elements)] = elements
    if _has_ended:
        elements.close()
    return elements


def end_iterators(iterator_type: Any) -> None:
    """End the streams that iterators read, and delete the iterators, which are of this type.

    Deletes all iterators if one reads a stream, as the function of a `flat_map` hides the datasets that it reads.
    Deleting one waits until its threads have returned from Python, and they no longer wait for a batch.
    """
    global _has_ended
    _has_ended = True
    reading = [elements for reference in _live.valuerefs() if (elements := reference()) is not None]
    for elements in reading:
        elements.close()
    if reading:
        # Not `isinstance`, which would import the modules behind lazy ones.
        iterators = [found for found in gc.get_objects() if issubclass(type(found), iterator_type)]
        for iterator in iterators:
            iterator.__dict__.pop("_iterator_resource", None)
