package machine_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/gopherqueue/gq"
	"github.com/gopherqueue/gq/internal/enum"
	"github.com/gopherqueue/gq/internal/testing/spec"
	"github.com/gopherqueue/gq/machine"
)

// groupID returns the id of job n of a test's group.
func groupID(n int) gq.JobID {
	var b [16]byte
	binary.BigEndian.PutUint32(b[:], uint32(n)+1)
	return machine.NewJobID(b)
}

func after(jobs ...int) []gq.Dependency {
	deps := make([]gq.Dependency, len(jobs))
	for i, n := range jobs {
		deps[i] = gq.Dependency{Kind: gq.DependencyAfter, Job: groupID(n)}
	}
	return deps
}

// group returns one job for each list of dependencies.
func group(dependencies ...[]gq.Dependency) []machine.Node {
	nodes := make([]machine.Node, len(dependencies))
	for i, d := range dependencies {
		nodes[i] = machine.Node{ID: groupID(i), Priority: gq.PriorityNormal, Dependencies: d}
	}
	return nodes
}

// chain returns a group of n jobs, each depending on the previous one.
func chain(n int) []machine.Node {
	dependencies := make([][]gq.Dependency, n)
	for i := 1; i < n; i++ {
		dependencies[i] = after(i - 1)
	}
	return group(dependencies...)
}

// exists returns a lookup function for existing jobs.
func exists(jobs map[int]machine.Ancestor) func(gq.JobID) (machine.Ancestor, bool) {
	byID := make(map[gq.JobID]machine.Ancestor)
	for n, a := range jobs {
		byID[groupID(n)] = a
	}
	return func(id gq.JobID) (machine.Ancestor, bool) {
		a, ok := byID[id]
		return a, ok
	}
}

func TestGraphOrder(t *testing.T) {
	for _, test := range []struct {
		name  string
		nodes []machine.Node
		order []int
		depth []int
	}{
		{"Empty", nil, []int{}, []int{}},
		{"Alone", group(nil), []int{0}, []int{1}},
		{"Unrelated", group(nil, nil, nil), []int{0, 1, 2}, []int{1, 1, 1}},
		{"InOrder", group(nil, after(0), after(0, 1)), []int{0, 1, 2}, []int{1, 2, 3}},
		{"Backwards", group(after(1), after(2), nil), []int{2, 1, 0}, []int{3, 2, 1}},
		{"OneOutOfPlace", group(nil, after(3), nil, nil), []int{0, 3, 1, 2}, []int{1, 2, 1, 1}},
		{"Diamond", group(after(1, 2), after(3), after(3), nil), []int{3, 1, 2, 0}, []int{3, 2, 2, 1}},
	} {
		t.Run(test.name, func(t *testing.T) {
			info, err := machine.CheckGraph(test.nodes, nil)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(info.Order, test.order) {
				t.Errorf("order %v, want %v", info.Order, test.order)
			}
			if !slices.Equal(info.Depth, test.depth) {
				t.Errorf("depth %v, want %v", info.Depth, test.depth)
			}
		})
	}
}

func TestGraphDepth(t *testing.T) {
	spec.Covers(t, "J-81")
	info, err := machine.CheckGraph(chain(100), nil)
	if err != nil || info.Depth[99] != 100 {
		t.Errorf("a chain of 100: %v, %v", info.Depth, err)
	}
	if _, err := machine.CheckGraph(chain(101), nil); !slices.Equal(faultFields(err), []string{"jobs[100].depends_on"}) {
		t.Errorf("a chain of 101: %v", err)
	}
	// For a chain that is far too long, only the first job that is too deep is named.
	if _, err := machine.CheckGraph(chain(gq.MaxGroupJobs), nil); !slices.Equal(faultFields(err), []string{"jobs[100].depends_on"}) {
		t.Errorf("a chain of 10,000: %v", err)
	}

	deep := exists(map[int]machine.Ancestor{50: {Depth: 99}, 51: {Depth: 100}, 52: {}})
	info, err = machine.CheckGraph(group(after(50), after(52), after(52, 50)), deep)
	if want := []int{100, 2, 100}; err != nil || !slices.Equal(info.Depth, want) {
		t.Errorf("behind existing jobs: %v, %v, want %v", info.Depth, err, want)
	}
	_, err = machine.CheckGraph(group(after(50), after(0), after(51), after(2)), deep)
	if want := []string{"jobs[1].depends_on", "jobs[2].depends_on"}; !slices.Equal(faultFields(err), want) {
		t.Errorf("too deep behind existing jobs: %v, want %v", err, want)
	}
	// A spawned job is one level deeper than its spawner.
	info, err = machine.CheckGraph(group([]gq.Dependency{{Kind: gq.DependencyFanOut, Job: groupID(50)}}), deep)
	if err != nil || info.Depth[0] != 100 {
		t.Errorf("spawned: %v, %v", info.Depth, err)
	}
}

func TestGraphBreadth(t *testing.T) {
	spec.Covers(t, "J-82")
	wide := func(n int) []machine.Node {
		jobs := make([]int, n)
		for i := range jobs {
			jobs[i] = i
		}
		nodes := group(make([][]gq.Dependency, n+1)...)
		nodes[n].Dependencies = after(jobs...)
		return nodes
	}
	if info, err := machine.CheckGraph(wide(1000), nil); err != nil || info.Depth[1000] != 2 {
		t.Errorf("1000 dependencies: %v", err)
	}
	spawned := wide(1000) // and by a job that is none of those it names
	for i := range spawned {
		spawned[i].Dependencies = append(spawned[i].Dependencies, gq.Dependency{Kind: gq.DependencyFanOut, Job: machine.NewJobID([16]byte{0xff})})
	}
	if _, err := machine.CheckGraph(spawned, func(gq.JobID) (machine.Ancestor, bool) { return machine.Ancestor{}, true }); err != nil {
		t.Errorf("1000 dependencies of a spawned job: %v", err)
	}
	if _, err := machine.CheckGraph(wide(1001), nil); !slices.Equal(faultFields(err), []string{"jobs[1001].depends_on"}) {
		t.Errorf("1001 dependencies: %v", err)
	}
}

func TestGraphPriority(t *testing.T) {
	spec.Covers(t, "J-50", "J-84")
	t.Run("AnyTwoLevels", func(t *testing.T) {
		for _, own := range enum.All[gq.Priority]() {
			for _, parent := range enum.All[gq.Priority]() {
				nodes := group(nil, after(0))
				nodes[0].Priority, nodes[1].Priority = parent, own
				info, err := machine.CheckGraph(nodes, nil)
				if want := min(own, parent); err != nil || info.Priority[1] != want || info.Priority[0] != parent {
					t.Errorf("%v behind %v: %v, %v, want %v", own, parent, info.Priority, err, want)
				}
				info, err = machine.CheckGraph(nodes[1:], exists(map[int]machine.Ancestor{0: {Depth: 1, Priority: parent}}))
				if want := min(own, parent); err != nil || info.Priority[0] != want {
					t.Errorf("%v behind existing %v: %v, %v, want %v", own, parent, info.Priority, err, want)
				}
			}
		}
	})
	t.Run("Transitive", func(t *testing.T) {
		nodes := group(after(1), after(2), nil, after(0, 4), nil)
		for i, p := range []gq.Priority{gq.PriorityBulk, gq.PriorityLow, gq.PriorityHigh, gq.PriorityBulk, gq.PriorityCritical} {
			nodes[i].Priority = p
		}
		info, err := machine.CheckGraph(nodes, nil)
		if want := []gq.Priority{gq.PriorityHigh, gq.PriorityHigh, gq.PriorityHigh, gq.PriorityCritical, gq.PriorityCritical}; err != nil || !slices.Equal(info.Priority, want) {
			t.Errorf("priorities %v, %v, want %v", info.Priority, err, want)
		}
	})
	t.Run("NotGiven", func(t *testing.T) {
		nodes := group(nil, after(0))
		nodes[0].Priority, nodes[1].Priority = gq.PriorityBulk, 0
		info, err := machine.CheckGraph(nodes, nil)
		if want := []gq.Priority{gq.PriorityBulk, gq.PriorityNormal}; err != nil || !slices.Equal(info.Priority, want) {
			t.Errorf("priorities %v, %v, want %v", info.Priority, err, want)
		}
	})
	t.Run("EveryKind", func(t *testing.T) {
		for _, kind := range enum.All[gq.DependencyKind]() {
			nodes := group(nil, []gq.Dependency{{Kind: kind, Job: groupID(0)}})
			nodes[0].Priority = gq.PriorityCritical
			if info, err := machine.CheckGraph(nodes, nil); err != nil || info.Priority[1] != gq.PriorityCritical {
				t.Errorf("%v: %v, %v", kind, info.Priority, err)
			}
		}
	})
}

func TestGraphCycles(t *testing.T) {
	spec.Covers(t, "J-80")
	for _, test := range []struct {
		name   string
		nodes  []machine.Node
		fields []string
		text   string
	}{
		{"Self", group(after(0)), []string{"depends_on[0].job"}, "depends on itself"},
		{"SelfInGroup", group(nil, after(0, 1)), []string{"jobs[1].depends_on[1].job"}, "depends on itself"},
		{"Two", group(after(1), after(0)), []string{"jobs[0].depends_on"}, fmt.Sprintf("cycle: jobs[0] %s → jobs[1] %s → jobs[0]", groupID(0), groupID(1))},
		{"BehindATail", group(after(1), after(2), after(3), after(1)), []string{"jobs[1].depends_on"}, "→ jobs[3] "},
		{"OneOfSeveral", group(after(1), after(0), after(3), after(2)), []string{"jobs[0].depends_on"}, "jobs[1]"},
		{"Spawned", group(after(1), []gq.Dependency{{Kind: gq.DependencyFanOut, Job: groupID(0)}}), []string{"jobs[0].depends_on"}, "cycle"},
	} {
		t.Run(test.name, func(t *testing.T) {
			info, err := machine.CheckGraph(test.nodes, nil)
			if got := faultFields(err); !slices.Equal(got, test.fields) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%v, want faults in %v with %q", err, test.fields, test.text)
			}
			if info.Order != nil || info.Depth != nil || info.Priority != nil {
				t.Errorf("a refused graph has info %v", info)
			}
		})
	}
	t.Run("Long", func(t *testing.T) {
		nodes := chain(90)
		nodes[0].Dependencies = after(89)
		_, err := machine.CheckGraph(nodes, nil)
		if err == nil || len(err.Error()) > 2000 || !strings.Contains(err.Error(), "70 more → jobs[0]") {
			t.Errorf("%v", err)
		}
	})
}

func TestGraphReportsEveryFault(t *testing.T) {
	nodes := []machine.Node{
		{ID: groupID(0), Dependencies: slices.Concat(after(0, 7, 1, 1), []gq.Dependency{{Kind: gq.DependencyAfter}, {Kind: 9, Job: groupID(2)}})},
		{ID: groupID(1), Priority: 9, Dependencies: after(0)},
		{ID: groupID(0)},
		{},
	}
	_, err := machine.CheckGraph(nodes, nil)
	want := []string{
		"jobs[1].priority",
		"jobs[2].id",
		"jobs[3].id",
		"jobs[0].depends_on[0].job",  // itself
		"jobs[0].depends_on[1].job",  // does not exist
		"jobs[0].depends_on[3].job",  // twice
		"jobs[0].depends_on[4].job",  // missing
		"jobs[0].depends_on[5].kind", // unknown
		"jobs[0].depends_on[5].job",  // does not exist
		"jobs[0].depends_on",         // cycle
	}
	if got := faultFields(err); !slices.Equal(got, want) {
		t.Errorf("faults in %q\nwant %q", got, want)
	}
	if !errors.Is(err, gq.ErrInvalid) {
		t.Errorf("%v is not ErrInvalid", err)
	}
}

// Faults name the jobs that the caller named, and those that stand for them.
func TestGraphFaultsNameReplacedJobs(t *testing.T) {
	known := exists(map[int]machine.Ancestor{12: {Depth: 1}})
	for _, test := range []struct {
		named, stands []gq.Dependency
		field, text   string
	}{
		{after(10), after(11), "depends_on[0].job", fmt.Sprintf("%s was replaced by %s, which does not exist any more", groupID(10), groupID(11))},
		{after(11), after(11), "depends_on[0].job", fmt.Sprintf("%s does not exist", groupID(11))},
		{after(10, 12), after(12, 12), "depends_on[1].job", fmt.Sprintf("%s is named twice, because it stands for %s;", groupID(12), groupID(10))},
		{after(12, 10), after(12, 12), "depends_on[1].job", fmt.Sprintf("%s is named twice, because it stands for %s;", groupID(12), groupID(10))},
		{after(10, 11), after(12, 12), "depends_on[1].job", fmt.Sprintf("%s is named twice, because it stands for %s and %s;", groupID(12), groupID(10), groupID(11))},
		{after(10, 10), after(12, 12), "depends_on[1].job", fmt.Sprintf("%s is named twice", groupID(10))},
	} {
		nodes := []machine.Node{{ID: groupID(0), Dependencies: test.stands, Named: test.named}}
		if _, err := machine.CheckGraph(nodes, known); !slices.Equal(faultFields(err), []string{test.field}) || !strings.Contains(fmt.Sprint(err), test.text) {
			t.Errorf("%v for %v: %v, want %s: %s", test.stands, test.named, err, test.field, test.text)
		}
	}
}

func TestGraphFaultsAreBounded(t *testing.T) {
	missing := make([]int, 1000)
	for i := range missing {
		missing[i] = 1_000_000 + i
	}
	_, err := machine.CheckGraph(group(after(missing...), after(missing...), after(missing...)), nil)
	fields := faultFields(err)
	if len(fields) != 1001 || fields[1000] != "jobs" || !strings.HasSuffix(err.Error(), "and 2000 faults more") {
		t.Errorf("%d faults, the last in %q", len(fields), fields[len(fields)-1])
	}
	if _, err := machine.CheckGraph(group(make([][]gq.Dependency, gq.MaxGroupJobs+1)...), nil); !slices.Equal(faultFields(err), []string{"jobs"}) {
		t.Errorf("a group that is too large: %v", err)
	}
}

// A job may be spawned by the job it waits for, but no dependency may be repeated.
func TestGraphSpawnedAndWaiting(t *testing.T) {
	parent := groupID(9)
	known := exists(map[int]machine.Ancestor{9: {Depth: 1}})
	for _, test := range []struct {
		kinds  []gq.DependencyKind
		fields []string
	}{
		{[]gq.DependencyKind{gq.DependencyFanOut, gq.DependencyAfter}, []string{}},
		{[]gq.DependencyKind{gq.DependencyAfter, gq.DependencyFanOut}, []string{}},
		{[]gq.DependencyKind{gq.DependencyFanOut, gq.DependencyFanOut}, []string{"depends_on[1].job"}},
		{[]gq.DependencyKind{gq.DependencyAfter, gq.DependencyAfterAny}, []string{"depends_on[1].job"}},
		{[]gq.DependencyKind{gq.DependencyFanOut, gq.DependencyAfter, gq.DependencyFanIn}, []string{"depends_on[2].job"}},
	} {
		node := machine.Node{ID: groupID(0)}
		for _, kind := range test.kinds {
			node.Dependencies = append(node.Dependencies, gq.Dependency{Kind: kind, Job: parent})
		}
		_, err := machine.CheckGraph([]machine.Node{node}, known)
		if got := faultFields(err); !slices.Equal(got, test.fields) {
			t.Errorf("%v: %v, want faults in %v", test.kinds, err, test.fields)
		}
	}
}

func TestGraphAsksOnce(t *testing.T) {
	asked := make(map[gq.JobID]int)
	_, err := machine.CheckGraph(group(after(8, 9), after(9), after(0, 9)), func(id gq.JobID) (machine.Ancestor, bool) {
		asked[id]++
		return machine.Ancestor{Depth: 1}, true
	})
	if err != nil || len(asked) != 2 || asked[groupID(8)] != 1 || asked[groupID(9)] != 1 {
		t.Errorf("asked %v, %v", asked, err)
	}
}

// Compares with an implementation that tries every path: an accepted graph has no cycle,
// and order, depth and priority follow from the paths.
func TestGraphAgainstBruteForce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 8).Draw(t, "jobs")
		edge := make([][]bool, size) // edge[i][j]: i depends on j
		nodes := make([]machine.Node, size)
		for i := range nodes {
			edge[i] = make([]bool, size)
			nodes[i] = machine.Node{ID: groupID(i), Priority: rapid.SampledFrom(enum.All[gq.Priority]()).Draw(t, "priority")}
			for _, j := range rapid.SliceOfNDistinct(rapid.IntRange(0, size-1), 0, 3, rapid.ID).Draw(t, "dependencies") {
				edge[i][j] = true
				nodes[i].Dependencies = append(nodes[i].Dependencies, gq.Dependency{
					Kind: rapid.SampledFrom(enum.All[gq.DependencyKind]()).Draw(t, "kind"), Job: groupID(j),
				})
			}
		}
		reach := make([][]bool, size)
		for i := range reach {
			reach[i] = slices.Clone(edge[i])
		}
		for k := range size {
			for i := range size {
				for j := range size {
					reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
				}
			}
		}
		cyclic := false
		for i := range size {
			cyclic = cyclic || reach[i][i]
		}

		info, err := machine.CheckGraph(nodes, nil)
		if (err != nil) != cyclic {
			t.Fatalf("cyclic %v, but: %v", cyclic, err)
		}
		if cyclic {
			return
		}
		var depth func(int) int
		depth = func(i int) int {
			deepest := 0
			for j := range size {
				if edge[i][j] {
					deepest = max(deepest, depth(j))
				}
			}
			return deepest + 1
		}
		inOrder := true
		place := make([]int, size)
		for at, i := range info.Order {
			place[i] = at
		}
		for i := range size {
			if info.Depth[i] != depth(i) {
				t.Fatalf("job %d has depth %d, want %d", i, info.Depth[i], depth(i))
			}
			priority := nodes[i].Priority
			for j := range size {
				if reach[i][j] {
					priority = min(priority, nodes[j].Priority)
				}
				if edge[i][j] && place[j] >= place[i] {
					t.Fatalf("job %d comes before job %d, on which it depends: %v", i, j, info.Order)
				}
				inOrder = inOrder && (!edge[i][j] || j < i)
			}
			if info.Priority[i] != priority {
				t.Fatalf("job %d has priority %v, want %v", i, info.Priority[i], priority)
			}
		}
		if sorted := slices.Sorted(slices.Values(info.Order)); len(sorted) != size || sorted[0] != 0 || sorted[size-1] != size-1 || len(slices.Compact(sorted)) != size {
			t.Fatalf("order %v is not a permutation", info.Order)
		}
		if inOrder && !slices.IsSorted(info.Order) {
			t.Fatalf("an order that was right was changed to %v", info.Order)
		}
	})
}

// BenchmarkCheckGraph shows that the work is linear in jobs and dependencies: the time per
// job does not grow with the group.
func BenchmarkCheckGraph(b *testing.B) {
	for _, jobs := range []int{100, 1000, 10_000} {
		nodes := make([]machine.Node, jobs)
		for i := range nodes {
			nodes[i] = machine.Node{ID: groupID(i), Priority: gq.PriorityNormal}
			if layer := i / (jobs / 100); layer > 0 {
				nodes[i].Dependencies = after(i-jobs/100, (layer-1)*(jobs/100)+(i*7+3)%(jobs/100))
				if nodes[i].Dependencies[0] == nodes[i].Dependencies[1] {
					nodes[i].Dependencies = nodes[i].Dependencies[:1]
				}
			}
		}
		b.Run(fmt.Sprint(jobs), func(b *testing.B) {
			for b.Loop() {
				if _, err := machine.CheckGraph(nodes, nil); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(jobs), "ns/job")
		})
	}
}
