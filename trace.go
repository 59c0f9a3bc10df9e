package gq

// Attributes of a job that have the W3C trace context of its submission: of the span in the
// context of the call, or of the headers of a request to a server. The span in the context of the
// handler is that of the submission, and the events of the job name it.
const (
	AttributeTraceParent = "traceparent"
	AttributeTraceState  = "tracestate"
)
