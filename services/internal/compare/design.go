// Package compare starts designs of the task queue as separate processes, puts each
// under the same load and reports the measurements.
package compare

import (
	"fmt"
	"strings"
)

// A Design is a way to run the task queue. To compare another one, add it to Designs.
type Design struct {
	Name      string
	Title     string
	Slots     int // jobs that run at the same time, on all nodes together
	Published int // addresses that its Compose file publishes, from ComposePort on
	Addresses int // how many addresses Processes needs
	Processes func(slots int, addrs []string) []Process
}

// With returns the design with another number of slots.
func (d Design) With(slots int) Design {
	d.Slots = slots
	return d
}

// A Process is one node: the program with its own arguments.
type Process struct {
	Name   string
	Args   []string
	Listen string // empty if it serves nothing
	Public bool   // clients may call it
	Data   string // flag for its data directory; empty if it keeps no data
}

// totalSlots is the number of worker slots of every design unless the settings say otherwise.
const totalSlots = 6

// Designs returns the designs that can be compared.
func Designs() []Design {
	return []Design{designA(), designB(), designC()}
}

func designA() Design {
	return Design{
		Name: "A", Title: "six services", Slots: totalSlots, Published: 1, Addresses: 5,
		Processes: func(slots int, a []string) []Process {
			gateway, job, queue, coordinator, result := a[0], a[1], a[2], a[3], a[4]
			to := []string{"--job", job, "--queue", queue, "--result", result}
			service := func(name, listen string, more ...string) Process {
				return Process{Name: name, Listen: listen, Args: append([]string{"svc", name, "--listen", listen}, more...)}
			}
			front := service("gateway", gateway, to...)
			front.Public = true
			return []Process{
				front, service("job", job), service("queue", queue), service("coordinator", coordinator, to...), service("result", result),
				{Name: "worker", Args: []string{"svc", "worker", "--coordinator", coordinator, "--slots", fmt.Sprint(slots)}},
			}
		},
	}
}

func designB() Design {
	return Design{
		Name: "B", Title: "six monoliths", Slots: totalSlots, Published: composeNodes, Addresses: composeNodes,
		Processes: func(slots int, a []string) (nodes []Process) {
			for i, addr := range a {
				nodes = append(nodes, Process{
					Name: fmt.Sprintf("node-%d", i), Listen: addr, Public: true,
					Args: []string{"node", "--listen", addr, "--peers", strings.Join(a, ","), "--index", fmt.Sprint(i), "--slots", fmt.Sprint(slots / composeNodes)},
				})
			}
			return nodes
		},
	}
}

// designC syncs to stable storage before it accepts a job, so it does more than the
// other two.
func designC() Design {
	return Design{
		Name: "C", Title: "durable engine", Slots: totalSlots, Published: composeServers, Addresses: 1,
		Processes: func(slots int, a []string) []Process {
			return []Process{{
				Name: "server", Listen: a[0], Public: true, Data: "--data",
				Args: []string{
					"serve", "--grpc", a[0], "--http", "127.0.0.1:0", "--taskqueue-slots", fmt.Sprint(slots),
					"--log-format", "json", "--drain", "2s",
				},
			}}
		},
	}
}

// single is one node of design B, for comparison with the floor.
func single() Design {
	return Design{
		Name: "B1", Title: "one monolith", Slots: 1, Addresses: 1,
		Processes: func(slots int, a []string) []Process {
			return []Process{{Name: "node", Listen: a[0], Public: true, Args: []string{"node", "--listen", a[0], "--slots", fmt.Sprint(slots)}}}
		},
	}
}

// floor is a server that only answers submits: the cost of gRPC itself on this machine.
func floor() Design {
	return Design{
		Name: "echo", Title: "bare gRPC", Addresses: 1,
		Processes: func(_ int, a []string) []Process {
			return []Process{{Name: "echo", Listen: a[0], Public: true, Args: []string{"compare", "echo", "--listen", a[0]}}}
		},
	}
}

// Find returns the design of that name.
func Find(name string) (Design, error) {
	for _, d := range Designs() {
		if strings.EqualFold(d.Name, name) {
			return d, nil
		}
	}
	return Design{}, fmt.Errorf("design: %q is not one of %s", name, strings.Join(designNames(), ", "))
}

func designNames() (names []string) {
	for _, d := range Designs() {
		names = append(names, d.Name)
	}
	return names
}
