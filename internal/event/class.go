package event

import (
	"errors"
	"fmt"
)

// Class says what an error of a sink means for the event.
type Class uint8

const (
	// Retryable: this attempt failed; another may succeed. It counts as an attempt. The class of every unknown error.
	Retryable Class = iota
	// Permanent: this event can never be accepted (too large, invalid topic, not authorised for its topic).
	Permanent
	// Unavailable: the broker can't be reached or can take nothing now. It says nothing about the event and counts no
	// attempt.
	Unavailable
	// NotAttempted: the event was not sent because an earlier one of its key in the same batch failed.
	NotAttempted
)

// String is the spelling used in metric labels.
func (c Class) String() string {
	switch c {
	case Permanent:
		return "permanent"
	case Unavailable:
		return "unavailable"
	case NotAttempted:
		return "not_attempted"
	default:
		return "retryable"
	}
}

// Error is an error of a sink with its class.
type Error struct {
	Class Class
	// Reason is a short constant in snake_case, fit for a metric label ("message_too_large"); never user data.
	Reason string
	Err    error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return fmt.Sprintf("%s: %v", e.Reason, e.Err)
}

// Unwrap implements the errors protocol.
func (e *Error) Unwrap() error { return e.Err }

// ErrNotAttempted is the result of an event that was held back behind a failed one of its key.
var ErrNotAttempted = &Error{Class: NotAttempted, Reason: "not_attempted"}

// ClassOf classifies an error; an error without a class is Retryable.
func ClassOf(err error) Class {
	var e *Error
	if errors.As(err, &e) {
		return e.Class
	}
	return Retryable
}

// ReasonOf is the Reason of a classified error, or "unknown".
func ReasonOf(err error) string {
	var e *Error
	if errors.As(err, &e) && e.Reason != "" {
		return e.Reason
	}
	return "unknown"
}
