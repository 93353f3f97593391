package webhook_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
)

// logOutput collects the manager's log.
type logOutput struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *logOutput) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// audited returns the lines of the audit log about a host.
func (o *logOutput) audited(host client.Object) []string { return o.lines("ElementalHost", host) }

// lines returns the lines of the audit log about an object.
func (o *logOutput) lines(kind string, obj client.Object) []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	var lines []string
	for line := range strings.Lines(o.text.String()) {
		if strings.Contains(line, `"Decided"`) && strings.Contains(line, fmt.Sprintf(" %s=%q", kind, client.ObjectKeyFromObject(obj))) {
			lines = append(lines, line)
		}
	}
	return lines
}

// clientOf returns a client of a user who may do everything.
func clientOf(t *testing.T, user string) client.Client {
	t.Helper()
	c, err := client.New(env.AddUser(t, user, "system:masters"), client.Options{Scheme: env.Scheme})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return c
}

// A user is authenticated by the API server, and only an admission request says who it is.
func TestThreat56_WhoDecidesIsRecorded(t *testing.T) {
	out := &logOutput{}
	serve(t, out)
	const eve = "eve\nI1122 forged"
	alice, bob := clientOf(t, "alice"), clientOf(t, "bob")
	newHost := func(t *testing.T) *infrav1.ElementalHost {
		t.Helper()
		host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: env.Namespace(t)}}
		NewWithT(t).Expect(env.Client(t).Create(t.Context(), host)).To(Succeed())
		return host
	}
	t.Run("of a change", func(t *testing.T) {
		g, host := NewWithT(t), newHost(t)
		host.Spec.Approval = infrav1.ApprovalApproved
		g.Expect(alice.Update(t.Context(), host)).To(Succeed())
		g.Expect(out.audited(host)).To(HaveExactElements(line("Approved", "alice", host.Generation)))

		host.Spec.Fence = &infrav1.HostFence{Reason: "stolen"}
		g.Expect(bob.Update(t.Context(), host)).To(Succeed())
		g.Expect(out.audited(host)).To(HaveExactElements(ContainSubstring(`user="alice"`), line("Fenced", "bob", host.Generation)))
	})
	t.Run("of a creation", func(t *testing.T) {
		g := NewWithT(t)
		host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-", Namespace: env.Namespace(t)}}
		host.Spec.Approval = infrav1.ApprovalApproved
		g.Expect(alice.Create(t.Context(), host)).To(Succeed())
		g.Expect(out.audited(host)).To(HaveExactElements(line("Approved", "alice", host.Generation)))
	})
	t.Run("with a name of several lines", func(t *testing.T) {
		g, host := NewWithT(t), newHost(t)
		host.Spec.Approval = infrav1.ApprovalRejected
		g.Expect(clientOf(t, eve).Update(t.Context(), host)).To(Succeed())
		g.Expect(out.audited(host)).To(HaveExactElements(line("Rejected", "eve�I1122 forged", host.Generation)))
	})
	t.Run("not of a dry run", func(t *testing.T) {
		g, host := NewWithT(t), newHost(t)
		host.Spec.Approval = infrav1.ApprovalApproved
		g.Expect(alice.Update(t.Context(), host.DeepCopy(), client.DryRunAll)).To(Succeed())
		g.Expect(out.audited(host)).To(BeEmpty())
	})
	t.Run("not of what the API server refuses before", func(t *testing.T) {
		g, host := NewWithT(t), newHost(t)
		host.Spec.Approval, host.Spec.Fence = infrav1.ApprovalApproved, &infrav1.HostFence{}
		g.Expect(alice.Update(t.Context(), host.DeepCopy())).NotTo(Succeed(), "a fence needs a reason")
		g.Expect(out.audited(host)).To(BeEmpty())
	})
	t.Run("not of other changes", func(t *testing.T) {
		g, host := NewWithT(t), newHost(t)
		host.Labels, host.Spec.Cordon = map[string]string{"a": "b"}, &infrav1.HostCordon{Reason: "full"}
		g.Expect(alice.Update(t.Context(), host)).To(Succeed())
		g.Expect(out.audited(host)).To(BeEmpty())
	})
}

// line matches the line about a stored change: its generation is that of the object.
func line(change, user string, generation int64) OmegaMatcher {
	return And(
		ContainSubstring(`decision="Requested"`), ContainSubstring("change=%q", change), ContainSubstring(`user="`+user+`"`),
		ContainSubstring("generation=%d", generation), ContainSubstring(`source="127.0.0.1:`),
	)
}

// answers asks for the same change with several keys, and returns what the user learns of it: the
// error, the warnings and the host. The key's own digits are replaced.
func answers(t *testing.T, config *rest.Config, try func(c client.Client, key string) (*infrav1.ElementalHost, error), keys ...string) []string {
	t.Helper()
	g := NewWithT(t)
	var told []string
	for _, key := range keys {
		var warnings bytes.Buffer
		config := rest.CopyConfig(config)
		config.WarningHandler = rest.NewWarningWriter(&warnings, rest.WarningWriterOptions{})
		c, err := client.New(config, client.Options{Scheme: env.Scheme})
		g.Expect(err).NotTo(HaveOccurred())
		host, err := try(c, key)
		spec, encodingErr := json.Marshal(host.Spec)
		g.Expect(encodingErr).NotTo(HaveOccurred())
		told = append(told, strings.ReplaceAll(fmt.Sprintf("%v\n%s\n%s", err, warnings.String(), spec), key, "KEY"))
	}
	return told
}

// Admission accepts a key that a host of another namespace has or declares. A refusal would let
// whoever is first lock others out. Its answers do not say which keys exist either.
func TestThreat48_KeysOfOthersMayBeDeclared(t *testing.T) {
	serve(t, io.Discard)
	owner, other := newTeam(t), newTeam(t)
	for name, declare := range map[string]func(key string) *infrav1.HostIdentity{
		"of a host": func(key string) *infrav1.HostIdentity { return &infrav1.HostIdentity{KeyFingerprint: key} },
		"of a match": func(key string) *infrav1.HostIdentity {
			return &infrav1.HostIdentity{Match: &infrav1.IdentityMatch{KeyFingerprint: key}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			known, unknown := "sha256:"+strings.Repeat("0a", 32), "sha256:"+strings.Repeat("0b", 32)
			newHost := func(namespace, name string, identity *infrav1.HostIdentity) *infrav1.ElementalHost {
				host := &infrav1.ElementalHost{ObjectMeta: metav1.ObjectMeta{Name: name, GenerateName: "test-", Namespace: namespace}}
				host.Spec.Identity = identity
				return host
			}
			g.Expect(owner.clients[operator].Create(t.Context(), newHost(owner.namespace, "", declare(known)))).To(Succeed())
			blank := newHost(other.namespace, "", nil)
			g.Expect(other.clients[operator].Create(t.Context(), blank)).To(Succeed())

			create := func(c client.Client, key string) (*infrav1.ElementalHost, error) {
				host := newHost(other.namespace, "new", declare(key))
				return host, c.Create(t.Context(), host, client.DryRunAll)
			}
			change := func(c client.Client, key string) (*infrav1.ElementalHost, error) {
				host := blank.DeepCopy()
				host.Spec.Identity = declare(key)
				return host, c.Update(t.Context(), host, client.DryRunAll)
			}
			as := func(user string) *rest.Config { return env.AddUser(t, user, other.namespace+":"+user) }
			created := answers(t, as(operator), create, known, unknown)
			g.Expect(created).To(HaveEach(And(HavePrefix("<nil>\n\n{"), ContainSubstring("KEY"))))
			g.Expect(created[0]).To(Equal(created[1]))
			changed := answers(t, as(operator), change, known, unknown)
			g.Expect(changed).To(HaveEach(And(HavePrefix("<nil>\n\n{"), ContainSubstring("KEY"))))
			g.Expect(changed[0]).To(Equal(changed[1]))
			refused := answers(t, as(admin), change, known, unknown)
			g.Expect(refused).To(HaveEach(ContainSubstring("approve")), "whoever may not decide whose a key is")
			g.Expect(refused[0]).To(Equal(refused[1]))

			g.Expect(other.clients[operator].Create(t.Context(), newHost(other.namespace, "", declare(known)))).To(Succeed())
		})
	}
}
