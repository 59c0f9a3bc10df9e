package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"

	publicpb "github.com/gopherqueue/gq/api/taskqueue/v1"
	"github.com/gopherqueue/gq/internal/cli"
	internalpb "github.com/gopherqueue/gq/services/api/taskqueueinternal/v1"
	"github.com/gopherqueue/gq/services/coordinator"
	"github.com/gopherqueue/gq/services/gateway"
	"github.com/gopherqueue/gq/services/internal/rpc"
	jobsvc "github.com/gopherqueue/gq/services/job"
	queuesvc "github.com/gopherqueue/gq/services/queue"
	resultsvc "github.com/gopherqueue/gq/services/result"
	"github.com/gopherqueue/gq/services/worker"
)

const svcLong = `Run one of the six services of design A of the task queue. They talk gRPC and
nothing else, keep everything in memory and write their log as JSON lines to
standard error. Design A is started in this order or any other:

  gqlab svc job         --listen ADDR
  gqlab svc queue       --listen ADDR
  gqlab svc result      --listen ADDR
  gqlab svc coordinator --listen ADDR --job ADDR --queue ADDR --result ADDR
  gqlab svc gateway     --listen ADDR --job ADDR --queue ADDR --result ADDR
  gqlab svc worker      --coordinator ADDR [--slots 6]

Clients talk to the gateway. The first line on standard output is
"listening grpc=HOST:PORT"; the worker listens to nobody and says
"working worker_id=ID". There is no encryption and no authentication: run this
on a trusted network only. Every flag can also be given in the environment, as
GQ_ and its name in capitals: GQ_LISTEN, GQ_JOB, GQ_SLOTS. The name of a worker
is WORKER_ID in the environment, else the host's.`

// nodeFlags are common to all nodes of the task queue.
type nodeFlags struct {
	listen   string
	logLevel string
}

func (f *nodeFlags) add(flags *pflag.FlagSet, listens bool) {
	flags.SortFlags = false
	if listens {
		flags.StringVar(&f.listen, "listen", "127.0.0.1:0", "address to serve gRPC on")
	}
	flags.StringVar(&f.logLevel, "log-level", "info", "least level that is logged: debug, info, warn or error")
}

func (f *nodeFlags) log(p process, service string) (*rpc.Log, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, cli.Invalid("log-level", fmt.Sprintf("%q is not one of debug, info, warn, error", f.logLevel))
	}
	return rpc.NewLog(p.stderr, service, level), nil
}

// fromEnvironment sets the flags that are not on the command line.
func fromEnvironment(flags *pflag.FlagSet, getenv func(string) string) error {
	var faults []error
	flags.VisitAll(func(f *pflag.Flag) {
		name := "GQ_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		value := getenv(name)
		if f.Changed || value == "" || f.Name == "help" {
			return
		}
		if err := flags.Set(f.Name, value); err != nil {
			faults = append(faults, cli.Invalid(name, fmt.Sprintf("%q does not fit: %v", value, err)))
		}
	})
	return errors.Join(faults...)
}

// peers are the addresses of the services that a service may call.
type peers struct{ job, queue, result, coordinator string }

func (p *peers) flags(flags *pflag.FlagSet, names ...string) {
	for _, name := range names {
		target := map[string]*string{"job": &p.job, "queue": &p.queue, "result": &p.result, "coordinator": &p.coordinator}[name]
		flags.StringVar(target, name, "", "address of the "+name+" service")
	}
}

// links collects connections, and the errors of making them.
type links struct {
	caller string
	conns  []io.Closer
	faults []error
}

func (d *links) dial(name, addr string) *grpc.ClientConn {
	if addr == "" {
		d.faults = append(d.faults, cli.Invalid(name, "its address is missing"))
		return nil
	}
	conn, err := rpc.Dial(addr, d.caller)
	if err != nil {
		d.faults = append(d.faults, err)
		return nil
	}
	d.conns = append(d.conns, conn)
	return conn
}

func (d *links) close() {
	for _, c := range d.conns {
		_ = c.Close() // no longer needed
	}
}

func newSvc(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "svc",
		Short: "Run a service of the task queue's design A",
		Long:  svcLong,
	}
	c.AddCommand(
		newService(p, "gateway", "Serve the public API", []string{"job", "queue", "result"}, func(log *rpc.Log, d *links, to peers) part {
			s := gateway.New(gateway.Config{
				Log: log, Jobs: internalpb.NewJobInternalServiceClient(d.dial("job", to.job)),
				Queue:   internalpb.NewQueueInternalServiceClient(d.dial("queue", to.queue)),
				Results: internalpb.NewResultInternalServiceClient(d.dial("result", to.result)),
			})
			return part{register: func(r grpc.ServiceRegistrar) { publicpb.RegisterTaskQueuePublicServiceServer(r, s) }}
		}),
		newService(p, "job", "Own the record and status of every job", nil, func(log *rpc.Log, _ *links, _ peers) part {
			s := jobsvc.New(jobsvc.Config{Log: log})
			return part{func(r grpc.ServiceRegistrar) { internalpb.RegisterJobInternalServiceServer(r, s) }, s.Run}
		}),
		newService(p, "queue", "Own which jobs wait", nil, func(*rpc.Log, *links, peers) part {
			s := queuesvc.New(queuesvc.Config{})
			return part{register: func(r grpc.ServiceRegistrar) { internalpb.RegisterQueueInternalServiceServer(r, s) }}
		}),
		newService(p, "coordinator", "Own worker liveness and dispatch", []string{"job", "queue", "result"}, func(log *rpc.Log, d *links, to peers) part {
			s := coordinator.New(coordinator.Config{
				Log: log, Jobs: internalpb.NewJobInternalServiceClient(d.dial("job", to.job)),
				Queue:   internalpb.NewQueueInternalServiceClient(d.dial("queue", to.queue)),
				Results: internalpb.NewResultInternalServiceClient(d.dial("result", to.result)),
			})
			return part{func(r grpc.ServiceRegistrar) { internalpb.RegisterCoordinatorInternalServiceServer(r, s) }, s.Run}
		}),
		newSvcWorker(p),
		newService(p, "result", "Own the results", nil, func(log *rpc.Log, _ *links, _ peers) part {
			s := resultsvc.New(resultsvc.Config{Log: log})
			return part{register: func(r grpc.ServiceRegistrar) { internalpb.RegisterResultInternalServiceServer(r, s) }}
		}),
	)
	return c
}

// part is what a process runs in addition to its server.
type part struct {
	register func(grpc.ServiceRegistrar)
	run      func(context.Context) error // nil if the service only answers calls
}

func newService(p process, name, short string, calls []string, build func(*rpc.Log, *links, peers) part) *cobra.Command {
	var f nodeFlags
	var to peers
	c := &cobra.Command{
		Use: name, Short: short, Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnvironment(c.Flags(), p.getenv); err != nil {
				return err
			}
			log, err := f.log(p, name)
			if err != nil {
				return err
			}
			d := &links{caller: name}
			defer d.close()
			built := build(log, d, to)
			if err := errors.Join(d.faults...); err != nil {
				return err
			}
			return serveNode(c.Context(), p, f.listen, log, built)
		},
	}
	f.add(c.Flags(), true)
	to.flags(c.Flags(), calls...)
	return c
}

// serveNode serves until ctx ends.
func serveNode(ctx context.Context, p process, addr string, log *rpc.Log, built part) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	server := rpc.NewServer(log)
	built.register(server)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		defer stop()
		if built.run == nil {
			<-ctx.Done()
			ended <- nil
			return
		}
		ended <- built.run(ctx)
	}()
	fmt.Fprintf(p.stdout, "listening grpc=%s\n", listener.Addr())
	log.Info(ctx, "Run", "started", "listening on "+listener.Addr().String())
	err = server.Run(ctx, listener)
	stop()
	return errors.Join(err, <-ended)
}

func newSvcWorker(p process) *cobra.Command {
	var f nodeFlags
	var to peers
	var slots int
	c := &cobra.Command{
		Use: "worker", Short: "Run jobs", Args: cli.NoArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := fromEnvironment(c.Flags(), p.getenv); err != nil {
				return err
			}
			log, err := f.log(p, "worker")
			if err != nil {
				return err
			}
			if slots < 1 {
				return cli.Invalid("slots", fmt.Sprintf("%d is less than 1", slots))
			}
			d := &links{caller: "worker"}
			defer d.close()
			conn := d.dial("coordinator", to.coordinator)
			if err := errors.Join(d.faults...); err != nil {
				return err
			}
			id, err := workerID(p.getenv)
			if err != nil {
				return err
			}
			fmt.Fprintf(p.stdout, "working worker_id=%s\n", id)
			log.Info(c.Context(), "Run", "started", "asking for work", rpc.WorkerID(id), slog.Int("slots", slots))
			return worker.New(worker.Config{ID: id, Slots: slots, Log: log, Coordinator: internalpb.NewCoordinatorInternalServiceClient(conn)}).Run(c.Context())
		},
	}
	f.add(c.Flags(), false)
	to.flags(c.Flags(), "coordinator")
	c.Flags().IntVar(&slots, "slots", worker.DefaultSlots, "jobs that run at the same time")
	return c
}

// workerID returns the name of a worker: as configured, or its host's.
func workerID(getenv func(string) string) (string, error) {
	host, err := os.Hostname()
	if id := cmp.Or(getenv("WORKER_ID"), host); id != "" {
		return id, nil
	}
	return "", fmt.Errorf("name the worker by WORKER_ID: %w", err)
}
