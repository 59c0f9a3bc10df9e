package repo_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/testing/spec"
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
	spec.Covers(t, "Q-08", "Q-13", "Q-81", "J-01", "J-91", "J-130", "J-131")
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

// The numbers of the security page are those of the code.
func TestDocumentedNumbers(t *testing.T) {
	for _, phrase := range []string{
		fmt.Sprintf("| names | %d bytes", gq.MaxNameBytes),
		fmt.Sprintf("idempotency keys %d characters; callback URL %d bytes", gq.MaxKeyRunes, gq.MaxURLBytes),
		fmt.Sprintf("%d tags of %d bytes, %d attributes, %d required capabilities", gq.MaxTags, gq.MaxTagBytes, gq.MaxAttributes, gq.MaxCapabilities),
		fmt.Sprintf("10,000 jobs and %d MiB in one call; %d jobs deep; %d dependencies of a job", gq.MaxGroupBytes>>20, gq.MaxDepth, gq.MaxDependencies),
		fmt.Sprintf("1 MiB each, up to %d MiB", gq.MaxPayloadBytes>>20),
	} {
		says(t, "docs/security.md", phrase)
	}
	if gq.MaxGroupJobs != 10_000 || gq.MaxQueues != 100_000 || gq.MaxPools != 10_000 {
		t.Error("docs/security.md tells other numbers of jobs, queues and pools")
	}
}
