package machine_test

import (
	"fmt"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/machine"
)

func ExampleDelay() {
	id := machine.NewJobID([16]byte{1})
	b := machine.DefaultPolicy().Backoff
	for n := 1; n <= 4; n++ {
		fmt.Println(machine.Delay(b, n, id, machine.Draw{}))
	}

	// With full jitter the random number selects a delay between zero and that one.
	b.Jitter = gq.JitterFull
	fmt.Println(machine.Delay(b, 4, id, machine.Draw{U: 0.25}))
	// Output:
	// 1s
	// 2s
	// 4s
	// 8s
	// 2s
}

func ExampleCheckGraph() {
	fetch, parse, report := machine.NewJobID([16]byte{1}), machine.NewJobID([16]byte{2}), machine.NewJobID([16]byte{3})
	info, err := machine.CheckGraph([]machine.Node{
		{ID: report, Priority: gq.PriorityLow, Dependencies: []gq.Dependency{{Kind: gq.DependencyAfter, Job: parse}}},
		{ID: parse, Priority: gq.PriorityNormal, Dependencies: []gq.Dependency{{Kind: gq.DependencyAfter, Job: fetch}}},
		{ID: fetch, Priority: gq.PriorityHigh},
	}, nil)
	fmt.Printf("%v %v %v %v\n", info.Order, info.Depth, info.Priority, err)

	_, err = machine.CheckGraph([]machine.Node{{ID: fetch, Dependencies: []gq.Dependency{{Kind: gq.DependencyAfter, Job: fetch}}}}, nil)
	fmt.Println(err)
	// Output:
	// [2 1 0] [3 2 1] [HIGH HIGH HIGH] <nil>
	// invalid: depends_on[0].job: 01000000-0000-4000-8000-000000000000 depends on itself
}

func ExamplePropagate() {
	fmt.Println(machine.Propagate(gq.DependencyAfter, gq.StatusFailed))
	fmt.Println(machine.Propagate(gq.DependencyFanIn, gq.StatusFailed))
	// Output:
	// fail
	// count
}
