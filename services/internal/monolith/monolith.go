// Package monolith is design B: several identical processes, each of which has all six
// services of design A, connected without a network.
//
// Each job belongs to the node that its id hashes to. A node accepts only its own jobs:
// it draws ids until one belongs to it. It forwards calls about other jobs to their
// owner, once. A node lists only its own jobs.
package monolith

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"google.golang.org/grpc"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/taskwork"
	"github.com/gopherqueue/gq/services/coordinator"
	"github.com/gopherqueue/gq/services/gateway"
	"github.com/gopherqueue/gq/services/internal/rpc"
	"github.com/gopherqueue/gq/services/job"
	"github.com/gopherqueue/gq/services/queue"
	"github.com/gopherqueue/gq/services/result"
	"github.com/gopherqueue/gq/services/worker"
)

// Config configures a node.
type Config struct {
	Peers []string // addresses of all nodes, including this one, in the same order everywhere
	Index int      // of this node in Peers
	Slots int      // jobs that run at the same time
	Log   *rpc.Log
}

// Validate reports every fault.
func (c Config) Validate() error {
	var faults []error
	if len(c.Peers) == 0 {
		faults = append(faults, errors.New("peers: none given"))
	}
	if slices.Contains(c.Peers, "") {
		faults = append(faults, errors.New("peers: one address is empty"))
	}
	if c.Index < 0 || c.Index >= len(c.Peers) {
		faults = append(faults, fmt.Errorf("index: %d is not between 0 and %d", c.Index, len(c.Peers)-1))
	}
	if c.Slots < 1 {
		faults = append(faults, fmt.Errorf("slots: %d is less than 1", c.Slots))
	}
	return errors.Join(faults...)
}

// Node serves TaskQueuePublicService.
type Node struct {
	publicpb.UnimplementedTaskQueuePublicServiceServer
	config Config
	local  *gateway.Service
	peers  []publicpb.TaskQueuePublicServiceClient // nil at Index
	conns  []io.Closer

	jobs        *job.Service
	coordinator *coordinator.Service
	worker      *worker.Worker
}

// New returns a node that runs no jobs until Run is called.
func New(c Config) (*Node, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	n := &Node{config: c, peers: make([]publicpb.TaskQueuePublicServiceClient, len(c.Peers))}
	wake := make(chan struct{}, c.Slots)
	n.jobs = job.New(job.Config{Log: c.Log, NewID: n.newID})
	waiting := localQueue{queue.New(queue.Config{Wake: func() {
		select {
		case wake <- struct{}{}:
		default: // enough slots are being woken
		}
	}})}
	results := localResults{result.New(result.Config{Log: c.Log})}
	n.coordinator = coordinator.New(coordinator.Config{Log: c.Log, Queue: waiting, Jobs: localJobs{n.jobs}, Results: results})
	n.worker = worker.New(worker.Config{
		ID: fmt.Sprintf("node-%d", c.Index), Slots: c.Slots, Log: c.Log, Coordinator: localCoordinator{n.coordinator}, Wake: wake,
	})
	n.local = gateway.New(gateway.Config{Log: c.Log, Jobs: localJobs{n.jobs}, Queue: waiting, Results: results})
	for i, addr := range c.Peers {
		if i == c.Index {
			continue
		}
		conn, err := rpc.Dial(addr, fmt.Sprintf("node-%d", c.Index))
		if err != nil {
			return nil, errors.Join(err, n.Close())
		}
		n.peers[i] = publicpb.NewTaskQueuePublicServiceClient(conn)
		n.conns = append(n.conns, conn)
	}
	return n, nil
}

// Close closes the connections to other nodes.
func (n *Node) Close() error {
	var faults []error
	for _, c := range n.conns {
		faults = append(faults, c.Close())
	}
	return errors.Join(faults...)
}

// Register registers the node's service.
func (n *Node) Register(r grpc.ServiceRegistrar) {
	publicpb.RegisterTaskQueuePublicServiceServer(r, n)
}

// Run works until ctx ends.
func (n *Node) Run(ctx context.Context) error {
	var parts sync.WaitGroup
	var jobs, dispatch error
	parts.Go(func() { jobs = n.jobs.Run(ctx) })
	parts.Go(func() { dispatch = n.coordinator.Run(ctx) })
	err := n.worker.Run(ctx)
	parts.Wait()
	return errors.Join(err, jobs, dispatch)
}

// newID draws ids until one belongs to this node.
func (n *Node) newID() string {
	for {
		if id := job.NewID(); taskwork.Owner(id, len(n.config.Peers)) == n.config.Index {
			return id
		}
	}
}
