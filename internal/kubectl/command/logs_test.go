package command_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/controller/controllertest"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/kubectl/command"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// logged is a host whose agent keeps logs, with a failed bootstrap and a later reset.
func logged(h *infrav1.ElementalHost) {
	h.Status.Agent = &infrav1.HostAgent{Capabilities: []string{string(protocol.CapabilityLogs)}}
	h.Status.Operations = []infrav1.HostOperation{
		{Type: infrav1.OperationBootstrap, ID: "b1", State: infrav1.OperationFailed, StartedAt: metav1.NewTime(now.Add(-time.Hour))},
		{Type: infrav1.OperationReset, ID: "r1", State: infrav1.OperationSucceeded, StartedAt: metav1.NewTime(now.Add(-time.Minute))},
		{Type: infrav1.OperationReboot, ID: "x1", State: infrav1.OperationSucceeded, StartedAt: metav1.NewTime(now)},
	}
}

// answer describes the log of an operation, as the manager does.
func answer(h *infrav1.ElementalHost, id string, op infrav1.OperationType, operationID string, state infrav1.OperationState) *infrav1.HostLog {
	return &infrav1.HostLog{
		ID: id, Operation: op, OperationID: operationID, State: state, SecretName: infrav1.LogSecretName(h),
		Redactions: 2, CutBytes: 7, ExpiresAt: metav1.NewTime(now.Add(time.Hour)),
	}
}

// secretOf creates the Secret with the log of a host.
func (f *fixture) secretOf(h *infrav1.ElementalHost, id, text string) {
	f.T.Helper()
	secret := &corev1.Secret{ObjectMeta: f.Meta(infrav1.LogSecretName(h)), Type: infrav1.HostLogSecretType, StringData: map[string]string{"log": text}}
	secret.Annotations = map[string]string{infrav1.LogRequestAnnotation: id}
	secret.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(h, infrav1.GroupVersion.WithKind("ElementalHost"))}
	f.Create(secret)
}

// runBoth runs a command, and returns both of its outputs.
func (f *fixture) runBoth(args ...string) (out, errOut string, err error) {
	f.T.Helper()
	var first, second bytes.Buffer
	root := command.New(command.Options{
		IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: &first, ErrOut: &second}, Clock: f.Clock,
	})
	root.SetArgs(append(args, "--kubeconfig", f.kubeconfig))
	err = root.ExecuteContext(f.Ctx)
	return first.String(), second.String(), err
}

// A log that is there already is printed without asking the host.
func TestLogThatIsThere(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", logged)
	controllertest.ChangeStatus(f.Fixture, h, func(h *infrav1.ElementalHost) {
		h.Status.Log = answer(h, "1", infrav1.OperationReset, "r1", infrav1.OperationSucceeded)
	})
	f.secretOf(h, "1", "Reset r1: Succeeded\n\x1b[2Jend\n")
	out, errOut, err := f.runBoth("logs", "h1")
	f.Expect(err).NotTo(HaveOccurred())
	f.Expect(out).To(Equal("Reset r1: Succeeded\n^[[2Jend\n"))
	f.Expect(errOut).To(Equal("The host has left out what looks like a secret, in 2 places.\nThe host has cut 7 bytes of the middle.\n" +
		"The log is in Secret h1-log until 2026-05-04T13:00:00Z.\n"))
	f.Refresh(h)
	f.Expect(h.Spec.LogRequest).To(BeNil())
}

// The host is asked, and its answer printed.
func TestLogOnRequest(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", logged)
	type result struct {
		out, errOut string
		err         error
	}
	done := make(chan result, 1)
	go func() {
		out, errOut, err := f.runBoth("logs", "h1", "--operation", "bootstrap")
		done <- result{out, errOut, err}
	}()
	f.Eventually(func() *infrav1.HostLogRequest {
		f.Refresh(h)
		return h.Spec.LogRequest
	}, time.Minute, 10*time.Millisecond).ShouldNot(BeNil())
	request := *h.Spec.LogRequest
	f.Expect(request.Operation).To(Equal(infrav1.OperationBootstrap))
	f.Expect(request.Until.UTC()).To(Equal(now.Add(2 * time.Minute)))
	_, err := f.run("logs", "h1")
	f.Expect(err).To(MatchError(ContainSubstring("somebody asks it for the log of its last Bootstrap")), "one at a time")

	controllertest.ChangeStatus(f.Fixture, h, func(h *infrav1.ElementalHost) {
		h.Status.Log = answer(h, request.ID, infrav1.OperationBootstrap, "b1", infrav1.OperationRunning)
	})
	f.secretOf(h, request.ID, "Bootstrap b1\n")
	controllertest.Change(f.Fixture, h, func(h *infrav1.ElementalHost) { h.Spec.LogRequest = nil })
	var got result
	f.Eventually(func() bool {
		f.Clock.Step(time.Second)
		select {
		case got = <-done:
			return true
		default:
			return false
		}
	}, time.Minute, 10*time.Millisecond).Should(BeTrue())
	f.Expect(got.err).NotTo(HaveOccurred())
	f.Expect(got.out).To(Equal("Bootstrap b1\n"))
	f.Expect(got.errOut).To(HavePrefix("Asked h1 for the log of its last Bootstrap; waiting for it\nThe Bootstrap still ran when the host answered.\n"))
}

// A request that nobody waits for any more is withdrawn.
func TestLogThatDoesNotCome(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", logged)
	done := make(chan error, 1)
	go func() {
		_, err := f.run("logs", "h1", "--timeout", "30s")
		done <- err
	}()
	var err error
	f.Eventually(func() bool {
		f.Clock.Step(5 * time.Second)
		select {
		case err = <-done:
			return true
		default:
			return false
		}
	}, time.Minute, 50*time.Millisecond).Should(BeTrue())
	f.Expect(err).To(MatchError(ContainSubstring("waiting for the log of h1: the host has not answered in time")))
	f.Refresh(h)
	f.Expect(h.Spec.LogRequest).To(BeNil())
}

// What would not be answered is not asked, and the answer says what a person can do.
func TestLogsAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*infrav1.ElementalHost)
		args   []string
		want   string
	}{
		"not connected": {disconnected, nil, "it is not connected, so it can't be asked. The log is in /var/lib/elemental/agent/logs on the host"},
		"former agent":  {func(h *infrav1.ElementalHost) { h.Status.Agent = nil }, nil, "its agent is too old: it keeps no logs. Update the agent"},
		"pending":       {pending, nil, "it is not approved"},
		"fenced":        {func(h *infrav1.ElementalHost) { h.Spec.Fence = &infrav1.HostFence{Reason: "x"} }, nil, "it is fenced"},
		"locked":        {func(h *infrav1.ElementalHost) { h.Spec.Lock = &infrav1.HostLock{Reason: infrav1.LockCloned} }, nil, "it is locked"},
		"paused":        {func(h *infrav1.ElementalHost) { h.Annotations = map[string]string{clusterv1.PausedAnnotation: ""} }, nil, "it is paused"},
		"nothing done":  {func(h *infrav1.ElementalHost) { h.Status.Operations = nil }, nil, "no bootstrap and no reset, so there is nothing to show"},
		"no such one":   {func(*infrav1.ElementalHost) {}, []string{"--operation", "etcdrestore"}, "it has reported no EtcdRestore, so there is nothing to show"},
		"odd operation": {func(*infrav1.ElementalHost) {}, []string{"--operation", "party"}, `--operation is "party"; it must be one of bootstrap, certificaterenewal, controlplanehalt, controlplanestart, etcdrestore, nodeupgrade, reboot, reset, upgrade`},
		"odd timeout":   {func(*infrav1.ElementalHost) {}, []string{"--timeout", "2h"}, "--timeout is 2h0m0s; it must be more than 0 and at most 1h0m0s"},
		"something else": {func(h *infrav1.ElementalHost) {
			h.Spec.LogRequest = &infrav1.HostLogRequest{ID: "1", Operation: infrav1.OperationReboot, Until: metav1.NewTime(now.Add(time.Minute))}
		}, nil, "somebody asks it for the log of its last Reboot, until 2026-05-04T12:01:00Z"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			h := f.Host("h1", logged, tc.change)
			before := h.Spec.LogRequest.DeepCopy()
			_, err := f.run(append([]string{"logs", "h1"}, tc.args...)...)
			f.Expect(err).To(MatchError(ContainSubstring(tc.want)))
			f.Expect(f.Admin.Get(f.Ctx, client.ObjectKeyFromObject(h), h)).To(Succeed())
			f.Expect(h.Spec.LogRequest).To(Equal(before))
		})
	}
}

// A host without a log, and a Secret that is another one by now.
func TestLogsThatAreNotThere(t *testing.T) {
	f := newFixture(t)
	h := f.Host("h1", logged)
	current := func(change func(*infrav1.HostLog)) {
		controllertest.ChangeStatus(f.Fixture, h, func(h *infrav1.ElementalHost) {
			h.Status.Log = answer(h, "1", infrav1.OperationReset, "r1", infrav1.OperationSucceeded)
			change(h.Status.Log)
		})
	}
	current(func(*infrav1.HostLog) {})
	_, err := f.run("logs", "h1")
	f.Expect(err).To(MatchError(ContainSubstring("reading the log: ")))
	f.secretOf(h, "2", "x")
	_, err = f.run("logs", "h1")
	f.Expect(err).To(MatchError(ContainSubstring("the log in Secret h1-log is another one by now: repeat the command")))
	f.Expect(errors.Unwrap(err)).NotTo(HaveOccurred())
}
