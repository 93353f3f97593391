package lab

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/lab/engine"
)

// Enrolment is a group of hosts that enrol through one ElementalRegistration.
type Enrolment struct {
	// Name and Namespace are the registration's. Namespace defaults to "default".
	Name, Namespace string
	// Labels are the labels that the registration sets on ElementalHosts. Enrol adds GroupLabel.
	Labels map[string]string
	// Hosts are the hosts that enrol.
	Hosts []*engine.Host
	// AgentVersion is the version that the agents report. Default: the release's version.
	AgentVersion string
}

// GroupLabel is on every ElementalHost that was enrolled by Enrol; its value is the registration's name.
const GroupLabel = "lab.elemental/registration"

const (
	agentUnit   = "elemental-agent.service"
	agentConfig = "/etc/elemental/agent/config.yaml"
)

// Enrol makes an ElementalRegistration, installs the agent on the hosts with the configuration that the registration
// publishes, and waits until all of them are connected. It may be run again, for other hosts or with a newer agent.
func (l *Lab) Enrol(ctx context.Context, e Enrolment) error {
	if e.Namespace == "" {
		e.Namespace = "default"
	}
	return l.progress.Step(fmt.Sprintf("Enrolling %d hosts", len(e.Hosts)), func() error { return l.enrol(ctx, e) })
}

func (l *Lab) enrol(ctx context.Context, e Enrolment) error {
	agent, err := l.agentFiles(ctx, e.AgentVersion)
	if err != nil {
		return err
	}
	manifest, err := registration(e)
	if err != nil {
		return fmt.Errorf("writing the registration: %w", err)
	}
	if err := l.applyRetrying(ctx, manifest); err != nil {
		return fmt.Errorf("making the registration: %w", err)
	}
	config, err := l.registrationConfig(ctx, e)
	if err != nil {
		return err
	}
	files := slices.Concat(agent, []engine.File{{Path: agentConfig, Mode: 0o600, Content: config}})
	errs := make([]error, len(e.Hosts))
	var group sync.WaitGroup
	for i, host := range e.Hosts {
		group.Go(func() { errs[i] = startAgent(ctx, host, files) })
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return l.waitConnected(ctx, e)
}

// agentFiles builds the agent and returns it with its unit, with the paths that the unit expects.
func (l *Lab) agentFiles(ctx context.Context, version string) ([]engine.File, error) {
	if version == "" {
		release, err := l.Release()
		if err != nil {
			return nil, err
		}
		version = release
	}
	program, err := l.sources.buildAgent(ctx, version)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(program)
	if err != nil {
		return nil, fmt.Errorf("reading the agent: %w", err)
	}
	unit, err := os.ReadFile(filepath.Join(l.options.Checkout, "cmd", "elemental-agent", agentUnit))
	if err != nil {
		return nil, fmt.Errorf("reading the agent's unit: %w", err)
	}
	path := unitProgram(string(unit))
	if path == "" {
		return nil, errors.New("reading the agent's unit: it starts no program by its full path")
	}
	return []engine.File{
		{Path: path, Mode: 0o755, Content: content},
		{Path: "/etc/systemd/system/" + agentUnit, Mode: 0o644, Content: unit},
	}, nil
}

// unitProgram returns the full path of the program that a systemd unit starts, or "".
func unitProgram(unit string) string {
	for line := range strings.Lines(unit) {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "ExecStart=")
		if fields := strings.Fields(command); found && len(fields) > 0 && strings.HasPrefix(fields[0], "/") {
			return fields[0]
		}
	}
	return ""
}

// registration returns the manifest of an enrolment's ElementalRegistration.
func registration(e Enrolment) (string, error) {
	labels := map[string]string{GroupLabel: e.Name}
	maps.Copy(labels, e.Labels)
	manifest, err := yaml.Marshal(map[string]any{
		"apiVersion": "infrastructure.cluster.x-k8s.io/v1beta2",
		"kind":       "ElementalRegistration",
		"metadata":   map[string]any{"name": e.Name, "namespace": e.Namespace},
		"spec": map[string]any{
			"approval":     "Automatic",
			"hostTemplate": map[string]any{"labels": labels},
			"token":        map[string]any{"maxUses": 1000},
		},
	})
	return string(manifest), err
}

// registrationConfig waits for the agent configuration that a registration publishes.
func (l *Lab) registrationConfig(ctx context.Context, e Enrolment) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var config []byte
	err := poll(ctx, time.Second, func() (string, bool) {
		secret, err := l.Kubectl(ctx, "--namespace", e.Namespace, "get", "elementalregistration", e.Name,
			"--output", "jsonpath={.status.tokenSecretRef.name}")
		if err != nil || secret == "" {
			return fmt.Sprintf("it names no token Secret: %v", err), false
		}
		text, err := l.Kubectl(ctx, "--namespace", e.Namespace, "get", "secret", secret,
			"--output", `jsonpath={.data.config\.yaml}`)
		if err != nil || text == "" {
			return fmt.Sprintf("its token Secret %s has no config.yaml: %v", secret, err), false
		}
		config, err = base64.StdEncoding.DecodeString(text)
		return fmt.Sprintf("its token Secret %s can't be read: %v", secret, err), err == nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for registration %s: %w", e.Name, err)
	}
	return config, nil
}

// AgentAPI returns the server URL at which hosts reach the manager of this management cluster.
func (l *Lab) AgentAPI() string { return agentAPI(l.Management().Address) }

// startAgent installs the agent on a host and restarts it.
func startAgent(ctx context.Context, host *engine.Host, files []engine.File) error {
	if err := host.Put(ctx, files...); err != nil {
		return err
	}
	for _, args := range [][]string{{"daemon-reload"}, {"enable", agentUnit}, {"restart", agentUnit}} {
		if _, err := host.Exec(ctx, append([]string{"systemctl"}, args...)...); err != nil {
			return fmt.Errorf("starting the agent: %w", err)
		}
	}
	return nil
}

// hostList has the fields of an ElementalHostList that the lab reads.
type hostList struct {
	Items []struct {
		Metadata metav1.ObjectMeta
		Status   struct {
			Addresses  []struct{ Address string }
			Conditions []metav1.Condition
		}
	}
}

// waitConnected waits until there is a connected ElementalHost with the address of each host.
func (l *Lab) waitConnected(ctx context.Context, e Enrolment) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	err := poll(ctx, time.Second, func() (string, bool) {
		out, err := l.Kubectl(ctx, "--namespace", e.Namespace, "get", "elementalhosts", "--output", "json")
		if err != nil {
			return err.Error(), false
		}
		var list hostList
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err.Error(), false
		}
		missing := unconnected(list, e.Hosts)
		return "not connected: " + strings.Join(missing, ", "), len(missing) == 0
	})
	if err != nil {
		return fmt.Errorf("waiting for hosts to connect: %w", err)
	}
	return nil
}

// unconnected returns the names of the hosts that have no connected ElementalHost.
func unconnected(list hostList, hosts []*engine.Host) []string {
	connected := map[string]bool{}
	for _, item := range list.Items {
		for _, condition := range item.Status.Conditions {
			if condition.Type != "Connected" || condition.Status != metav1.ConditionTrue {
				continue
			}
			for _, address := range item.Status.Addresses {
				connected[address.Address] = true
			}
		}
	}
	var missing []string
	for _, host := range hosts {
		if !connected[host.Address] {
			missing = append(missing, host.Name)
		}
	}
	return missing
}

// poll calls check until it returns true. If the context ends first, the error contains the last
// state.
func poll(ctx context.Context, every time.Duration, check func() (state string, done bool)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	var last string
	for {
		state, done := check()
		if done {
			return nil
		}
		if ctx.Err() == nil {
			last = state
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %s", context.Cause(ctx), last)
		case <-tick.C:
		}
	}
}
