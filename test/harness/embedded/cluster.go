package embedded

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/names"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/ports"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/embedded/process"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/shell"
)

const (
	// stepTimeout bounds each step of a start except builds, also on a busy machine.
	stepTimeout = 5 * time.Minute
	// stopGrace is how long processes may take to shut down in order. They needn't: no data outlives the cluster.
	stopGrace = 20 * time.Second
)

// errStopped is the cause of an intended end.
var errStopped = errors.New("it was stopped")

// A layer is stopped before the one below it.
const (
	layerStore = iota
	layerServer
	layerControllers
	layerManagers
	layers
)

// Cluster is a running management cluster. It is safe for concurrent use.
type Cluster struct {
	// Folder has data, credentials and logs.
	Folder string
	// Kubeconfig is an administrator's kubeconfig file.
	Kubeconfig string
	// Config is an administrator's client configuration, without rate limit.
	Config *rest.Config
	// AgentURL is the URL of the agent API, CABundle its CA certificates (PEM).
	AgentURL, CABundle string
	// Proxy is the URL of a proxy that leads names of Services to the manager's gateway. Clients of clusters whose endpoint is
	// of type Tunnel need it as HTTPS_PROXY, as Cluster API's managers have it.
	Proxy string
	// Store is the cluster's etcd.
	Store Store
	// Gateway is the address of the manager's gateway, host:port, where TLS connections are routed by server name.
	Gateway string

	options   Options
	temporary bool
	progress  *shell.Progress
	sources   *sources
	trust     *trust
	providers []provider
	managers  []*Manager
	// everyManager has those of Cluster API too, in the order in which they start.
	everyManager []*Manager

	// life ends when the cluster must stop; its cause is the reason.
	life  context.Context
	end   context.CancelCauseFunc
	done  chan struct{}
	fault error

	mu        sync.Mutex
	names     *names.Proxy
	ports     ports.Set
	processes [layers][]*process.Process
	// specs are the programs of the layers below the managers, in the order in which they started.
	specs [layers][]process.Spec
}

// Store is a member of etcd.
type Store struct {
	// URL is where it serves clients, and Data the folder of its data.
	URL, Data string
	// Authority, Certificate and Key are the files, PEM, of a client that may do everything.
	Authority, Certificate, Key string

	// peer is the URL that the member tells other members.
	peer string
}

// Start builds missing programs, starts a cluster and returns when it accepts objects of all kinds. After an error
// nothing is left running. ctx bounds the start, not the life of the cluster.
func Start(ctx context.Context, options Options) (*Cluster, error) {
	if options.Progress == nil {
		options.Progress = io.Discard
	}
	folder, temporary, err := options.makeFolder()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		Folder: folder, Kubeconfig: filepath.Join(folder, "kubeconfig"),
		options: options, temporary: temporary, progress: shell.NewProgress(options.Progress), done: make(chan struct{}),
	}
	c.life, c.end = context.WithCancelCause(context.WithoutCancel(ctx))
	go c.supervise()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The end of any process fails the current step.
	go c.fail(cancel, ctx.Done())
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// fail makes a start fail with the reason for the cluster's end, unless the start is over.
func (c *Cluster) fail(start context.CancelCauseFunc, over <-chan struct{}) {
	select {
	case <-c.life.Done():
		start(context.Cause(c.life))
	case <-over:
	}
}

// start runs the steps of a start.
func (c *Cluster) start(ctx context.Context) error {
	if err := c.progress.Step("Building programs", func() error { return c.prepare(ctx) }); err != nil {
		return err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
	}{
		{"Starting etcd and kube-apiserver", c.startServer},
		{"Starting kube-controller-manager", c.startControllers},
		{"Installing kinds and roles", c.install},
		{"Starting managers", c.startManagers},
		{"Registering webhooks", c.registerWebhooks},
		{"Waiting for the agent API", c.findAgentAPI},
	} {
		err := c.progress.Step(step.name, func() error {
			ctx, cancel := context.WithTimeout(ctx, stepTimeout)
			defer cancel()
			return step.run(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// launch starts a process of a layer.
func (c *Cluster) launch(layer int, spec process.Spec) error {
	if _, err := c.run(layer, spec); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.specs[layer] = append(c.specs[layer], spec)
	return nil
}

func (c *Cluster) run(layer int, spec process.Spec) (*process.Process, error) {
	spec.Log = filepath.Join(c.Folder, "logs", spec.Name+".log")
	spec.Dir = c.Folder
	spec.Env = append(spec.Env, "HOME="+c.Folder, "TMPDIR="+c.Folder)
	c.mu.Lock()
	defer c.mu.Unlock()
	// Not after the other processes were stopped.
	if c.life.Err() != nil {
		return nil, fmt.Errorf("starting %s: %w", spec.Name, context.Cause(c.life))
	}
	p, err := process.Start(spec)
	if err != nil {
		return nil, err
	}
	c.processes[layer] = append(c.processes[layer], p)
	go func() {
		<-p.Done()
		if err := p.Err(); err != nil {
			c.end(err)
		}
	}()
	return p, nil
}

// PIDs returns the IDs of all running processes by name: etcd, kube-apiserver, kube-controller-manager, capi-core,
// capi-kubeadm-bootstrap, capi-kubeadm-control-plane, manager, manager-2 and so on.
func (c *Cluster) PIDs() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := map[string]int{}
	for _, layer := range c.processes {
		for _, p := range layer {
			select {
			case <-p.Done():
			default:
				pids[p.Name()] = p.PID()
			}
		}
	}
	return pids
}

// reserve returns a port that is reserved until the cluster ends.
func (c *Cluster) reserve() (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		return 0, context.Cause(c.life)
	}
	return c.ports.Reserve()
}

// supervise stops the cluster on request or when one of its processes has ended.
func (c *Cluster) supervise() {
	<-c.life.Done()
	if cause := context.Cause(c.life); !errors.Is(cause, errStopped) {
		c.fault = cause
		c.progress.Say("Stopping all that is left: %v", cause)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for layer := layers - 1; layer >= 0; layer-- {
		var group sync.WaitGroup
		for _, p := range c.processes[layer] {
			group.Go(func() {
				if p.Stop(stopGrace) {
					c.progress.Say("%s was killed: it had not ended after %s", p.Name(), stopGrace)
				}
			})
		}
		group.Wait()
	}
	if c.names != nil {
		c.names.Close()
	}
	c.ports.Release()
	close(c.done)
}

// Program returns the file of a program that the cluster was started with, such as kubectl.
func (c *Cluster) Program(name string) string { return c.sources.program(name) }

// Done is closed when all processes have ended.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Err returns why the cluster has ended without a request: the process that ended, and the end of its log. It is nil
// while the cluster runs and after Stop.
func (c *Cluster) Err() error {
	select {
	case <-c.done:
		return c.fault
	default:
		return nil
	}
}

// Stop stops the cluster, waits for all processes, and removes a temporary folder. It may be repeated, also for a cluster
// that has ended by itself.
func (c *Cluster) Stop() error {
	c.end(errStopped)
	<-c.done
	if !c.temporary {
		return nil
	}
	if err := os.RemoveAll(c.Folder); err != nil {
		return fmt.Errorf("removing the cluster's folder: %w", err)
	}
	return nil
}
