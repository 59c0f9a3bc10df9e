package gq_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/gopherqueue/gq"
)

// A handler answers with a verdict where it knows one; other errors are judged
// by what they say.
func ExampleClassify() {
	for _, err := range []error{
		gq.Temporary(errors.New("printer is warming up"), gq.RetryAfter(time.Minute)),
		fmt.Errorf("ship order: %w", gq.Permanent(errors.New("no such street"), "bad_address")),
		errors.New("call billing: unexpected status 503"),
		errors.New("user 7 not found"),
		errors.New("something odd"),
	} {
		f := gq.Classify(err)
		fmt.Printf("%v %q %v\n", f.Category, f.Code, f.Message)
	}
	// Output:
	// TEMPORARY "" printer is warming up
	// PERMANENT "bad_address" ship order: no such street
	// TEMPORARY "http_503" call billing: unexpected status 503
	// PERMANENT "not_found" user 7 not found
	// TEMPORARY "" something odd
}

func ExampleBackoff_Delay() {
	id := gq.NewJobID([16]byte{1})
	b := gq.Default().Backoff
	for n := 1; n <= 4; n++ {
		fmt.Println(b.Delay(n, id, gq.Draw{}))
	}

	// With full jitter the draw decides where between zero and that delay.
	b.Jitter = gq.JitterFull
	fmt.Println(b.Delay(4, id, gq.Draw{U: 0.25}))
	// Output:
	// 1s
	// 2s
	// 4s
	// 8s
	// 2s
}

func ExampleCheckGraph() {
	fetch, parse, report := gq.NewJobID([16]byte{1}), gq.NewJobID([16]byte{2}), gq.NewJobID([16]byte{3})
	info, err := gq.CheckGraph([]gq.Node{
		{ID: report, Priority: gq.Low, Dependencies: []gq.Dependency{{Kind: gq.After, Job: parse}}},
		{ID: parse, Priority: gq.Normal, Dependencies: []gq.Dependency{{Kind: gq.After, Job: fetch}}},
		{ID: fetch, Priority: gq.High},
	}, nil)
	fmt.Printf("%v %v %v %v\n", info.Order, info.Depth, info.Priority, err)

	_, err = gq.CheckGraph([]gq.Node{{ID: fetch, Dependencies: []gq.Dependency{{Kind: gq.After, Job: fetch}}}}, nil)
	fmt.Println(err)
	// Output:
	// [2 1 0] [3 2 1] [HIGH HIGH HIGH] <nil>
	// invalid: depends_on[0].job: 01000000-0000-4000-8000-000000000000 depends on itself
}

func ExampleDependencyKind_Propagate() {
	fmt.Println(gq.After.Propagate(gq.Failed))
	fmt.Println(gq.FanIn.Propagate(gq.Failed))
	// Output:
	// fail
	// count
}
