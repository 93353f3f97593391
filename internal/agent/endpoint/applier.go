package endpoint

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/durable"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/publish"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/redirect"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/reject"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/platform"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// commandTimeout is the time limit of a command.
const commandTimeout = 30 * time.Second

// Options configure an Applier.
type Options struct {
	// Documents are the agent's documents; the Applier uses endpoint.json.
	Documents state.Files
	// Root replaces "/"; blank means this machine.
	Root string
	// System writes files; nil means durable.OS.
	System durable.System
	// Commands runs systemctl, nft and ip; nil means oscommand.System.
	Commands oscommand.Runner
	// Interfaces lists all network interfaces, including loopback; nil means those
	// of this machine.
	Interfaces func() ([]platform.NetworkInterface, error)
	// Local serves endpoints on the host itself; nil means that it cannot.
	Local Local
	Log   *slog.Logger
}

// Local serves an endpoint on the host itself; see local.Endpoint.
type Local interface {
	Apply(ctx context.Context, endpoint protocol.Endpoint) (served string, err error)
	Keep(ctx context.Context) (served string, err error)
	Remove(ctx context.Context) error
	Leftovers() ([]string, error)
}

// Applier applies the control plane endpoint to this host. Use New. Its methods
// may be called concurrently; they run one at a time.
type Applier struct {
	o  Options
	mu sync.Mutex
}

// New returns an Applier.
func New(o Options) *Applier {
	if o.Root == "" {
		o.Root = "/"
	}
	if o.System == nil {
		o.System = durable.OS{}
	}
	if o.Commands == nil {
		o.Commands = oscommand.System{}
	}
	if o.Interfaces == nil {
		o.Interfaces = allInterfaces
	}
	return &Applier{o: o}
}

// record must survive a restart of the agent.
type record struct {
	// Files are the paths of static Pods that may exist.
	Files []string `json:"files,omitempty"`
	// VIPs are the addresses that kube-vip may have added to an interface.
	VIPs []string `json:"vips,omitempty"`
	// Rejects is the former endpoint that the host may reject.
	Rejects string `json:"rejects,omitempty"`
	// RestartDue is true if kubelet.conf may be newer than the running kubelet.
	RestartDue bool `json:"restartDue,omitempty"`
}

func (a *Applier) document() state.Document[record] {
	return state.Document[record]{Files: a.o.Documents, Name: "endpoint.json"}
}

// Prepare writes the files before a bootstrap, records the endpoint's virtual
// address for the reset, and serves the endpoint on the host if it is a local one. It removes files that are no longer desired;
// nil files change nothing. It may be repeated and changes only what differs.
func (a *Applier) Prepare(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	current, err := a.document().Load()
	if err != nil {
		return err
	}
	_, err = a.applyLocal(ctx, endpoint)
	return errors.Join(err, a.applyFiles(&current, files), a.applyVIP(ctx, &current, endpoint))
}

// Apply applies Desired.Endpoint and Desired.Files of a plan, and reports the
// result without probes. It must not run while a bootstrap or a reset runs,
// because they write the same files.
//
// A nil endpoint leaves kubeconfigs as they are and removes the rule that
// rejects a former endpoint. It also removes the virtual address, unless static
// Pods stay on the host because files are nil. A local endpoint is served until
// Remove.
//
// A second call with the same arguments writes nothing. A failure is in the
// report's Message and in the error, and does not prevent the other changes;
// the caller must call again.
func (a *Applier) Apply(ctx context.Context, endpoint *protocol.Endpoint, files []protocol.File) (protocol.EndpointReport, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	var report protocol.EndpointReport
	current, err := a.document().Load()
	if err != nil {
		return report, err
	}
	report.Local, err = a.applyLocal(ctx, endpoint)
	failures := []error{err, a.applyFiles(&current, files), a.applyVIP(ctx, &current, endpoint)}
	var rules rewrite.Rules
	if endpoint != nil {
		if rules, err = rewrite.New(*endpoint); err != nil {
			failures = append(failures, err)
			endpoint = nil
		}
	}
	report.Kubeconfigs, err = a.updateKubeconfigs(ctx, &current, rules)
	failures = append(failures, err)
	if endpoint != nil && endpoint.Publish {
		if err := publish.Publish(ctx, a.o.Root, rules); err != nil {
			failures = append(failures, err)
		} else {
			report.Workload = rules.Endpoint()
		}
	}
	var former string
	if endpoint != nil {
		former = endpoint.Reject
	}
	if former != "" && rewrite.Normalize(former, "") == rewrite.Normalize(rules.Endpoint(), "") {
		failures = append(failures, fmt.Errorf("not refusing connections to %s, which is the endpoint", former))
		former = ""
	}
	report.Rejects, err = a.reject(ctx, &current, former)
	failures = append(failures, err)
	err = errors.Join(failures...)
	report.Message = message(err)
	return report, err
}

// Remove removes the files, the virtual address, the local endpoint, and the rules
// that reject a former endpoint or redirect the endpoint; kubeconfigs stay. A reset calls it after the node's
// containers have ended, because a running kube-vip would add the address
// again. It may be repeated.
func (a *Applier) Remove(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	current, err := a.document().Load()
	if err != nil {
		return err
	}
	failures := []error{a.applyFiles(&current, []protocol.File{}), a.applyVIP(ctx, &current, nil)}
	if current.Rejects != "" || a.table().Exists(ctx) {
		failures = append(failures, a.table().Delete(ctx))
	}
	if redirection := a.redirection(); redirection.Exists(ctx) {
		failures = append(failures, redirection.Delete(ctx))
	}
	if a.o.Local != nil {
		failures = append(failures, a.o.Local.Remove(ctx))
	}
	if err := errors.Join(failures...); err != nil {
		return err
	}
	remaining, err := a.findVIPs(current.VIPs)
	if err != nil {
		return err
	}
	if len(remaining) > 0 {
		return fmt.Errorf("the control plane's virtual address is still there: %s", remaining[0])
	}
	return a.o.Documents.Remove(a.document().Name)
}

// Leftovers lists what Remove would remove, as protocol.Cleanliness reports it.
func (a *Applier) Leftovers(ctx context.Context) ([]string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	current, err := a.document().Load()
	if err != nil {
		return nil, err
	}
	vips, err := a.findVIPs(current.VIPs)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, vip := range vips {
		found = append(found, vip.String())
	}
	for _, name := range current.Files {
		if a.o.System.Stat(a.path(name)) == nil {
			found = append(found, "file "+name)
		}
	}
	if a.table().Exists(ctx) {
		found = append(found, "packet filter table "+reject.Name)
	}
	if a.redirection().Exists(ctx) {
		found = append(found, "packet filter table "+redirect.Name)
	}
	if a.o.Local != nil {
		local, err := a.o.Local.Leftovers()
		if err != nil {
			return nil, err
		}
		found = append(found, local...)
	}
	slices.Sort(found)
	return found, nil
}

// applyLocal serves a local endpoint. Without one it maintains what was applied before.
func (a *Applier) applyLocal(ctx context.Context, endpoint *protocol.Endpoint) (served string, err error) {
	wanted := endpoint != nil && endpoint.Local != nil
	switch {
	case a.o.Local == nil && wanted:
		return "", errors.New("this agent cannot serve the endpoint on the host")
	case a.o.Local == nil:
		return "", nil
	case wanted:
		return a.o.Local.Apply(ctx, *endpoint)
	}
	return a.o.Local.Keep(ctx)
}

// reject makes the host reject connections to a former endpoint; a blank former
// endpoint removes the rule. It returns the endpoint that the host rejects.
func (a *Applier) reject(ctx context.Context, current *record, former string) (string, error) {
	if former == "" && current.Rejects == "" {
		return "", nil
	}
	if former == "" {
		if err := a.table().Delete(ctx); err != nil {
			return current.Rejects, err
		}
		current.Rejects = ""
		return "", a.document().Save(*current)
	}
	local, err := a.localAddresses(*current)
	if err != nil {
		return "", err
	}
	if current.Rejects != former {
		current.Rejects = former
		if err := a.document().Save(*current); err != nil {
			return "", err
		}
	}
	if err := a.table().Set(ctx, former, local); err != nil {
		return "", err
	}
	return former, nil
}

func (a *Applier) table() reject.Table { return reject.Table{Commands: a.o.Commands} }

// redirection is the table that an upgrade in place may have left.
func (a *Applier) redirection() redirect.Table { return redirect.Table{Commands: a.o.Commands} }

func (a *Applier) path(name string) string { return filepath.Join(a.o.Root, name) }

// message shortens an error to the limit of a report.
func message(err error) string {
	if err == nil {
		return ""
	}
	const ellipsis = "…"
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > protocol.MaxMessageBytes {
		text = strings.ToValidUTF8(text[:protocol.MaxMessageBytes-len(ellipsis)], "") + ellipsis
	}
	return text
}
