//go:build embedded

package main_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	infrav1 "github.com/capi-elemental/cluster-api-provider-elemental/api/v1beta2"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/hoststatus"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/figures/measure"
)

const (
	// overhead is what the API server stores of a host besides its status.
	overhead = 4 << 10
	// eventBurst and eventInterval bound the Events of a host that are objects of their own; eventReasons is the number of
	// further Events, one for each reason.
	eventBurst, eventInterval, eventReasons = 30, 20 * time.Second, 10
	// maxStreams bounds the streams of a tunnel, maxGrowth the memory of the manager for one hostile tunnel and for all else
	// that the rogue leaves.
	maxStreams, maxGrowth = 128, 512 << 20
)

// result is what the program prints of an attempt.
type result struct {
	Attempt string
	Answers map[string]int
	Hosts   []string
	Leaked  []string
}

// playRogue builds the program and runs it.
func (w *world) playRogue(assignment map[string]any) map[string]result {
	w.t.Helper()
	folder := w.t.TempDir()
	program, file := filepath.Join(folder, "rogue"), filepath.Join(folder, "assignment.json")
	out, err := exec.CommandContext(w.t.Context(), "go", "build", "-o", program, ".").CombinedOutput()
	w.Expect(err).NotTo(HaveOccurred(), string(out))
	raw, err := json.Marshal(assignment)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(os.WriteFile(file, raw, 0o600)).To(Succeed())
	run := exec.CommandContext(w.t.Context(), program, "attempts", file)
	var failures bytes.Buffer
	run.Stderr = &failures
	printed, err := run.Output()
	w.t.Logf("%s", printed)
	w.Expect(err).NotTo(HaveOccurred(), failures.String())
	results := map[string]result{}
	lines := json.NewDecoder(bytes.NewReader(printed))
	for lines.More() {
		var r result
		w.Expect(lines.Decode(&r)).To(Succeed())
		results[r.Attempt] = r
	}
	return results
}

// A host that knows the public API only tries all that it can think of against a running manager, and its tenant helps it.
// It gets nothing of others, changes nothing of others, and stores no more than it may.
func TestRogue(t *testing.T) {
	w := newWorld(t)
	tenantToken := w.registration(tenant, "edge", func(s *infrav1.ElementalRegistrationSpec) { s.MaxPendingHosts = maxPending })
	first := w.enrol(tenantToken, hostAddress)
	w.addCluster(tenant, "follows", func(p *infrav1.ControlPlaneEndpointPolicy) { p.Host = &infrav1.EndpointHostPolicy{} })
	w.Expect(w.bootstrapped(tenant, "follows").Name).To(Equal(first.name))
	second := w.enrol(tenantToken, "192.0.2.11")
	w.addCluster(tenant, "virtual", ofTypeVIP(virtualIP))
	w.Expect(w.bootstrapped(tenant, "virtual").Name).To(Equal(second.name))

	third := w.enrolWithTunnel(tenantToken, "192.0.2.13", w.apiServer())
	w.addCluster(tenant, "hidden", ofTypeTunnel)
	w.Expect(w.bootstrapped(tenant, "hidden").Name).To(Equal(third.name))
	w.Eventually(func() error { return w.visit(t.Context(), nil, endpointName(tenant, "hidden")) }).Should(Succeed())
	w.addSized(tenant)

	assignment := w.addHostile()
	w.registration(tenant, "named", func(s *infrav1.ElementalRegistrationSpec) {
		s.Endpoint.URL, s.MaxPendingHosts = "https://tenant.example", maxPending
	})
	fourth, given := w.addShared()
	maps.Copy(assignment, given)

	plans := func(w *world) []protocol.Plan {
		return []protocol.Plan{w.plan(first), w.plan(second), w.plan(third), w.plan(fourth)}
	}
	before, plansBefore, capacities := w.settled(), plans(w), w.capacities()
	plot := w.conspire(first, fourth)
	manager := measure.Process(w.cluster.Managers()[0].PID())
	memory, err := manager.Memory()
	w.Expect(err).NotTo(HaveOccurred())
	visitor := w.visitAgain(endpointName(tenant, "hidden"))
	tried, leave := w.intrude(endpointName(hostile, "behind"))
	victim := w.host(tenant, first.name)
	maps.Copy(assignment, map[string]any{
		"server": w.cluster.AgentURL, "trustBundle": w.cluster.CABundle, "address": "198.51.100.1",
		// Names of hosts that the rogue claimed to have been contain the victim's name.
		"secrets": []string{
			secretData + "-follows", secretData + "-virtual", secretData + "-shared", "elemental://" + tenant + "/" + first.name + `"`, second.name, second.id,
			tenantToken, "root:",
		},
		"victim": map[string]any{
			"namespace": tenant, "name": first.name, "hostID": first.id, "operation": victim.Spec.Claim.ID, "publicKey": first.key,
			"address": hostAddress, "port": 6443, "virtualIP": virtualIP,
		},
	})
	start := time.Now()
	results := w.playRogue(assignment)
	took := time.Since(start)
	visitor.stop()
	leave()
	t.Logf("%d connections to the rogue's own cluster were tried", tried.Load())
	memoryAfter, err := manager.Memory()
	w.Expect(err).NotTo(HaveOccurred())

	t.Run("Tunnels", func(t *testing.T) { w.in(t).checkTunnels(results, visitor, third, memory, memoryAfter) })
	t.Run("Answers", func(t *testing.T) { w.in(t).checkAnswers(results) })
	t.Run("NothingOfOthers", func(t *testing.T) {
		g := w.in(t)
		g.Expect(g.objects()).To(Equal(before), "the victims' objects, versions included")
		g.Expect(plans(g)).To(Equal(plansBefore))
	})
	t.Run("Capacity", func(t *testing.T) { w.in(t).Expect(w.capacities()).To(Equal(capacities)) })
	t.Run("Guests", func(t *testing.T) { w.in(t).checkGuests(results) })
	t.Run("Squatters", func(t *testing.T) { w.in(t).checkSquatters(plot.squatters) })
	t.Run("Declared", func(t *testing.T) { w.in(t).checkDeclared(0) })
	t.Run("Storage", func(t *testing.T) { w.in(t).checkStorage(results, took) })
	t.Run("Log", func(t *testing.T) { w.in(t).checkLog() })
	t.Run("ServingCertificate", func(t *testing.T) {
		for _, name := range []string{"127.0.0.1", "tenant.example"} {
			w.in(t).checkCertificate(name)
		}
	})
	t.Run("Impostors", func(t *testing.T) { w.in(t).checkImpostors(before) })
	t.Run("NewHost", func(t *testing.T) {
		g := w.in(t)
		invited := g.work(g.registerMachine(plot.invited, tenantToken, "192.0.2.12"))
		host := g.host(tenant, invited.name)
		g.Expect(host.Spec.Approval).To(Equal(infrav1.ApprovalApproved), "strangers use up no invited host's place")
		g.Expect(host.Status.KeyFingerprint).To(Equal(invited.fingerprint), "its token's namespace decides")
		g.checkDeclared(1)
	})
}

// in returns the world for a subtest.
func (w *world) in(t *testing.T) *world {
	t.Helper()
	out := *w
	out.t, out.WithT = t, NewWithT(t)
	out.SetDefaultEventuallyTimeout(soon)
	return &out
}

// answersOf are the expected answers of an attempt: all that may occur, and those that must.
type answersOf struct{ may, must string }

const (
	refused   = "403 urn:elemental:token-refused"
	unknown   = "401 urn:elemental:unknown-host"
	noBoot    = "404 urn:elemental:no-operation"
	notYours  = "409 urn:elemental:no-operation"
	isLocked  = "403 urn:elemental:locked"
	closed    = "closed"
	separator = ", "
)

// expected returns the expected answers of all attempts.
func expected() map[string]answersOf {
	some := func(answers ...string) string { return strings.Join(answers, separator) }
	return map[string]answersOf{
		"join with a token, and run the bootstrap of its own cluster": {some("200", "204", "429"), some("200", "204")},
		"enrol a thousand keys without a token":                       {some(refused, "429", "503"), refused},
		"enrol a thousand keys that claim to have been the victim":    {some("200", refused, "429", "503"), some("200", "429")},
		"use a token for one host fifty times at once":                {some("200", refused, "429", "503"), some("200", refused)},
		"take the victim's name with a token of its own":              {"200", "200"},
		"shape the capacity with hosts that nobody has approved":      {some("200", "204", "429", "503"), some("200", "204")},
		"enrol with the serial numbers of others":                     {some("200", noBoot), some("200", noBoot)},
		"return after its deletion without a word":                    {some("200", noBoot), some("200", noBoot)},
		"use a long-lived token that was moved":                       {some("200", noBoot), some("200", noBoot)},
		"ask for keys and kubeconfigs as bootstrap data":              {some("200", "204", "429", noBoot), some("200", noBoot)},
		"forge headers of the PROXY protocol":                         {some("400", closed, "unforged 200"), some(closed, "unforged 200")},
		"forge lines of the audit log":                                {some("200", "204", refused), some("200", "204", refused)},
		"read the plan of others":                                     {some("200", "404", unknown, closed), some("200", unknown)},
		"read the bootstrap data of others":                           {some(noBoot, "400", "404", unknown, closed), some(noBoot, unknown)},
		"read files through the agent's path":                         {some(noBoot, "400", unknown, closed), some(noBoot, unknown)},
		"rotate to the victim's key":                                  {some("400", "403", "409 urn:elemental:stale-generation"), ""},
		"report operations of others":                                 {some(notYours, unknown, closed), some(notYours, unknown)},
		"claim the victim's key in headers":                           {some("200", noBoot, unknown, closed), some("200", noBoot, unknown)},
		"poll without a boot ID after polls with one":                 {"400", "400"},
		"return to a former boot":                                     {some("200", "503", isLocked), some("200", isLocked)},
		"send huge headers and parameters":                            {some("200", "400", "431", unknown, closed), "400"},
		"send huge, deep and foreign bodies":                          {some("400", "413", "415", unknown, closed), some("400", "413", "415")},
		"smuggle requests":                                            {some("400", "404", noBoot, "405", "415", "501", "505", closed), some("400", closed)},
		"write slowly and read slowly":                                {closed, closed},
		"claim the addresses of others":                               {some("200", "204"), "204"},
		"report on the endpoint of others":                            {some("204", unknown, closed), some("204", unknown)},
		"handshake for a thousand server names":                       {some("open", closed), "open"},
		"fill its status":                                             {some("204", "429", "503"), some("204", "429")},
		"fill the status of a pending host":                           {some("200", "204", "429", "503"), some("200", "204", "429")},
		"forge Events with small reports":                             {some("204", "429", "503"), some("204", "429")},
		"hold silent handshakes":                                      {some("open", "held", closed, "newcomer 200"), some(closed, "newcomer 200")},
		"hold connections without a known key":                        {some("open", "held", closed, "newcomer 200"), some("held", closed, "newcomer 200")},
		"flood routes that do not exist":                              {some("404", "429", closed), "404"},
		"open many polls with one key":                                {some("204", "429", closed), "204"},
		"join a cluster that is reached through tunnels":              {some("200", "204", "429"), some("200", "204")},
		"open tunnels that nobody asks for":                           {some("200", "403", "503", isLocked, unknown, closed), some("403", isLocked)},
		"ask for a tunnel in other ways than agents":                  {some("400", "404", "405", "409", "426", closed), some("400", "405", "409", "426")},
		"send something else than HTTP/2 in a tunnel":                 {some("101", closed), some("101", closed)},
		"open tunnels and say nothing":                                {some("101", "429", closed), some("101", closed)},
		"flood requests for tunnels":                                  {some("101", "403", "409", "429", closed), some("101", "429")},
		"answer no dial of a tunnel":                                  {some("101", "429", closed, "dials", "at once"), some("101", "dials")},
		"stall all streams of a tunnel":                               {some("101", "429", closed, "dials", "at once"), some("101", "dials")},
	}
}

// checkAnswers checks that each attempt was made and answered as expected, and that no answer had a secret of others.
func (w *world) checkAnswers(results map[string]result) {
	w.t.Helper()
	for name, want := range expected() {
		got, made := results[name]
		if !made {
			w.t.Errorf("%q was not tried", name)
			continue
		}
		for answer, count := range got.Answers {
			if !slices.Contains(strings.Split(want.may, separator), answer) {
				w.t.Errorf("%q was answered %s (%d times)", name, answer, count)
			}
		}
		for answer := range strings.SplitSeq(want.must, separator) {
			if answer != "" && got.Answers[answer] == 0 {
				w.t.Errorf("%q was never answered %s: %v", name, answer, got.Answers)
			}
		}
		if len(got.Leaked) > 0 {
			w.t.Errorf("%q or an attempt before it revealed %q", name, got.Leaked)
		}
	}
	for name := range results {
		if _, known := expected()[name]; !known {
			w.t.Errorf("%q has no expected answers", name)
		}
	}
	for _, attempt := range []string{"enrol a thousand keys without a token", "forge headers of the PROXY protocol"} {
		w.Expect(results[attempt].Hosts).To(BeEmpty(), attempt)
	}
	w.Expect(results["use a token for one host fifty times at once"].Hosts).To(HaveLen(1))
	w.Expect(results["hold connections without a known key"].Answers["held"]).To(BeNumerically("<=", maxUnauthenticated))
	for _, attempt := range []string{"hold silent handshakes", "hold connections without a known key"} {
		w.Expect(results[attempt].Answers["newcomer 200"]).To(Equal(5), attempt)
	}
}

// checkStorage checks what is stored of the rogue's hosts, and that nobody has approved those that nobody should.
func (w *world) checkStorage(results map[string]result, took time.Duration) {
	w.t.Helper()
	largest := map[infrav1.Approval]int{}
	count := 0
	for _, namespace := range []string{tenant, hostile, shared} {
		hosts := w.hosts(namespace)
		for i := range hosts {
			h := &hosts[i]
			size, limit := w.stored(h), hoststatus.MaxPendingStatus+overhead
			if h.Spec.Approval == infrav1.ApprovalApproved {
				limit = hoststatus.MaxStatus + overhead
			}
			largest[h.Spec.Approval] = max(largest[h.Spec.Approval], size)
			w.Expect(size).To(BeNumerically("<=", limit), "%s/%s is stored in %d bytes", namespace, h.Name, size)
			if namespace == tenant && h.Spec.PendingReason == infrav1.PendingReadopted {
				w.Expect(h.Spec.Approval).To(Equal(infrav1.ApprovalPending), h.Name)
				count++
			}
		}
		for name, events := range w.events(namespace) {
			w.Expect(len(events)).To(BeNumerically("<=", eventBurst+int(took/eventInterval)+eventReasons), "Events about %s/%s", namespace, name)
		}
	}
	w.t.Logf("the largest hosts, as stored: %v bytes; %d re-adopted hosts", largest, count)
	w.Expect(largest[infrav1.ApprovalApproved]).To(BeNumerically(">", hoststatus.MaxStatus/2), "the rogue has filled its status")
	w.Expect(largest[infrav1.ApprovalPending]).To(BeNumerically(">", hoststatus.MaxPendingStatus/2))
	w.Expect(count).To(Equal(maxPending), "the strangers have used up their quota, and nothing else")
	for _, name := range results["take the victim's name with a token of its own"].Hosts {
		namespace, name, _ := strings.Cut(name, "/")
		w.Expect(namespace).To(Equal(hostile), "the token decides")
		w.Expect(w.host(namespace, name).Spec.Approval).To(Equal(infrav1.ApprovalPending))
	}
}

// checkLog checks that no line of the manager's log begins as the rogue wants, and that it tried.
func (w *world) checkLog() {
	w.t.Helper()
	log := w.log()
	w.Expect(regexp.MustCompile(`(?m)^[^A-Z]*(\{"logger"|I1231).*$`).FindAllString(log, -1)).To(BeEmpty())
	w.Expect(log).NotTo(ContainSubstring("\x1b"))
	w.Expect(log).NotTo(ContainSubstring(forgedAddress))
	w.Expect(log).To(ContainSubstring("forged"), "the log tells what the rogue claimed")
}

// checkCertificate checks that hosts reach the agent API by that name.
func (w *world) checkCertificate(name string) {
	w.t.Helper()
	roots := x509.NewCertPool()
	w.Expect(roots.AppendCertsFromPEM([]byte(w.cluster.CABundle))).To(BeTrue())
	dialer := tls.Dialer{Config: &tls.Config{RootCAs: roots, ServerName: name, MinVersion: tls.VersionTLS13}}
	conn, err := dialer.DialContext(w.t.Context(), "tcp", strings.TrimPrefix(w.cluster.AgentURL, "https://"))
	w.Expect(err).NotTo(HaveOccurred(), name)
	w.Expect(conn.Close()).To(Succeed())
}
