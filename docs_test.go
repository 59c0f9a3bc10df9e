package gq_test

import (
	"os"
	"strings"
	"testing"

	"github.com/gopherqueue/gq/internal/spec"
)

// says fails unless a document contains a phrase, whatever its line breaks.
func says(t *testing.T, file, phrase string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("read: %v", err)
	}
	if text := strings.Join(strings.Fields(string(raw)), " "); !strings.Contains(text, phrase) {
		t.Errorf("%s no longer says %q", file, phrase)
	}
}

// What users must know before they rely on the queue stands in the guarantees.
func TestDocumentedLimitsOfTheGuarantees(t *testing.T) {
	spec.Covers(t, "Q-08", "Q-13", "Q-19", "Q-81", "J-01", "J-91", "J-130", "J-131")
	const page = "docs/semantics.md"
	for _, phrase := range []string{
		"version 1.0 of the job model",
		"**Exactly-once execution.**",
		"Handlers that must not act twice have to be idempotent.",
		"**Order across queues**",
		"A store may take a moment before a submitted job can be claimed.",
		"## Counting attempts",
		"Backoff is constant, linear, exponential or a function of the application's own",
		"Encrypt sensitive fields before submission, or submit a reference instead of the data.",
	} {
		says(t, page, phrase)
	}
}
