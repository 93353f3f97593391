package command_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// remedied is how a situation ends.
type remedied struct {
	// run is a part of each command to run, of those that the output has.
	run string
	// gone is what the output does not have afterwards.
	gone string
}

// carriedOut are the remedies of situations that commands end.
func carriedOut() map[string]remedied {
	const noHost = "NoSuitableHost"
	return map[string]remedied{
		"machine-label":            {"label", noHost},
		"machine-labels":           {"label", noHost},
		"machine-failure-domain":   {"label", "NoHostInFailureDomain"},
		"machine-pending":          {"approve", noHost},
		"machine-rejected":         {"approve", noHost},
		"machine-cordoned":         {"uncordon", noHost},
		"machine-pinned":           {"uncordon", noHost},
		"machine-maintenance":      {"maintenance", noHost},
		"machine-quarantined":      {"patch", noHost},
		"machine-fenced":           {"unfence", noHost},
		"machine-claimed":          {"release", "ResetHeld"},
		"machine-disconnected":     {"delete", "AgentDisconnected"},
		"machine-paused":           {"patch", "Paused"},
		"machine-bootstrap-failed": {"delete machine", "BootstrapFailed"},
		"machine-host-deleted":     {"delete machine", "HostMissing"},
		"machine-host-away":        {"release", "Bootstrapping"},
		"machine-releasing-away":   {"release", "HostSilent"},
		"machine-adopted":          {"patch", "not declared for adoption"},
		"host-disconnected":        {"delete", "AgentDisconnected"},
		"host-cloned":              {"patch", "IdentityCloned"},
		"host-held":                {"release", "ResetHeld"},
		"host-stale-conditions":    {"uncordon", "Cordoned"},
		"host-wanted":              {"label", "not matching"},
	}
}

// notCarriedOut says why no command ends the other situations.
func notCarriedOut() map[string]string {
	const onHost, byTemplate, byItself = "a person works on the machine", "it takes another template", "it ends by itself"
	return map[string]string{
		"machine-no-hosts": onHost, "machine-registration": onHost, "machine-leftovers": onHost, "machine-inventory-unknown": onHost,
		"machine-expression": byTemplate, "machine-expression-fails": byTemplate,
		"machine-label-choice":        "the selector leaves a choice of labels",
		"machine-failure-domain-text": "no label can have that value",
		"machine-many":                "a person chooses which of the hosts are gone for ever",
		"machine-tunnel":              "a person chooses the version of the agent in the registration",
		"machine-infrastructure":      "explain cluster goes on", "machine-bootstrap-data": byItself, "machine-bootstrapping": byItself,
		"machine-endpoint-host": onHost, "machine-not-reconciled": "somebody starts the manager",
		"host-free": "it waits for nothing", "host-never-connected": onHost, "host-reset-failed": onHost, "host-clock": onHost,
	}
}

// A person who has only the output ends each situation of a Machine or a host by the commands in it. What the manager
// does afterwards is done by its own code.
func TestRemediesEndSituations(t *testing.T) {
	carried, others := carriedOut(), notCarriedOut()
	situations := map[string]func(*fixture){}
	for prefix, group := range map[string]map[string]func(*fixture){"machine-": withoutHost(), "host-": hostsAlone()} {
		for name, situation := range group {
			situations[prefix+name] = situation
		}
	}
	for name, situation := range withHost() {
		situations["machine-"+name] = situation
	}
	NewWithT(t).Expect(situations).To(HaveLen(len(carried)+len(others)), "each situation is in one of the lists")
	for name, situation := range situations {
		if others[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			situation(f)
			kind, _, _ := strings.Cut(name, "-")
			what := []string{"explain", kind, map[string]string{"machine": "m1", "host": "h1"}[kind]}
			text, err := f.run(what...)
			f.Expect(err).NotTo(HaveOccurred())
			f.Expect(text).To(ContainSubstring(carried[name].gone))
			f.Clock.Step(time.Minute)
			f.carryOut(text, carried[name].run)
			f.manage()
			text, err = f.run(what...)
			if err != nil {
				f.Expect(err).To(MatchError(MatchRegexp("there is no |does not exist")))
			}
			f.Expect(text).NotTo(ContainSubstring(carried[name].gone))
		})
	}
}

// commands finds the commands in remedies.
var commands = regexp.MustCompile("kubectl [^;`\n]+")

// carryOut runs the commands of a text that have the words, each once.
func (f *fixture) carryOut(text, words string) {
	f.T.Helper()
	seen := map[string]bool{}
	for _, line := range commands.FindAllString(text, -1) {
		// What elemental-agent status prints on the host.
		line = strings.Replace(line, "SHA256", keyOfPending, 1)
		args := strings.Fields(line)
		if !strings.Contains(line, words) || seen[line] {
			continue
		}
		seen[line] = true
		f.Expect(line).NotTo(MatchRegexp(`\b(HOST|MACHINE|CLUSTER|NAMESPACE|KEY=VALUE)\b`), "a person would have to find out more")
		if args[1] == "elemental" {
			f.input = args[3] + "\n"
			_, err := f.run(args[2:]...)
			f.Expect(err).NotTo(HaveOccurred(), line)
			continue
		}
		f.Expect(args[1:3]).To(Equal([]string{"-n", f.Namespace}), line)
		f.kubectl(args[3:]...)
	}
	f.Expect(seen).NotTo(BeEmpty(), "the output names no such command:\n%s", text)
}

// kubectl does what kubectl would do.
func (f *fixture) kubectl(args ...string) {
	f.T.Helper()
	verb := args[0]
	args = strings.Fields(strings.TrimPrefix(strings.Join(args[1:], " "), "--overwrite "))
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(map[string]schema.GroupVersionKind{
		"machine": clusterv1.GroupVersion.WithKind("Machine"), "cluster": clusterv1.GroupVersion.WithKind("Cluster"),
		"elementalhost": infrav1.GroupVersion.WithKind("ElementalHost"), "elementaletcdrestore": infrav1.GroupVersion.WithKind("ElementalEtcdRestore"),
	}[args[0]])
	o.SetNamespace(f.Namespace)
	o.SetName(args[1])
	switch verb {
	case "delete":
		f.Expect(args).To(HaveLen(2))
		f.Expect(f.Admin.Delete(f.Ctx, o)).To(Succeed())
	case "patch":
		f.Expect(args[2:5]).To(Equal([]string{"--type", "merge", "-p"}))
		f.Expect(args).To(HaveLen(6))
		f.patch(o, []byte(strings.Trim(args[5], "'")))
	case "label":
		labels := map[string]any{}
		for _, label := range args[2:] {
			if key, value, isSet := strings.Cut(label, "="); isSet {
				labels[key] = value
				continue
			}
			f.Expect(label).To(HaveSuffix("-"))
			labels[strings.TrimSuffix(label, "-")] = nil
		}
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		f.Expect(err).NotTo(HaveOccurred())
		f.patch(o, patch)
	default:
		f.T.Fatalf("kubectl %s is not known here", verb)
	}
}

func (f *fixture) patch(o client.Object, patch []byte) {
	f.T.Helper()
	f.Expect(f.Admin.Patch(f.Ctx, o, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

// manage has Cluster API delete the ElementalMachine of a Machine that was deleted, and the
// manager look at it.
func (f *fixture) manage() {
	f.T.Helper()
	m := &infrav1.ElementalMachine{ObjectMeta: f.Meta("m1")}
	if !f.Exists(m) {
		return
	}
	if owner := (&clusterv1.Machine{ObjectMeta: f.Meta("m1")}); !f.Exists(owner) && m.DeletionTimestamp.IsZero() {
		f.Delete(m)
	}
	f.reconcileOnce(m)
}
