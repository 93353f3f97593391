package workload_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/publish"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint/rewrite"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/node"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/retry"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/fleet"
	"github.com/capi-elemental/cluster-api-provider-elemental/test/harness/simulator/workload"
)

func dialer(from netip.Addr) *net.Dialer {
	d := &net.Dialer{Timeout: 5 * time.Second}
	if from.IsValid() {
		d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))
	}
	return d
}

func anyAddress() netip.Addr { return netip.Addr{} }

// The agent's packages work on a simulated node: the providerID setter and the publication of the
// endpoint.
func TestAgentsParts(t *testing.T) {
	r := newRig(t, workload.Options{})
	first, worker := r.machine(), r.machine()
	c := r.cluster(first, 0)
	c.join(worker, false)
	for _, m := range []fleet.Machine{first, worker} {
		setter := &node.Setter{Kubeconfigs: []string{filepath.Join(m.Root, "etc/kubernetes/kubelet.conf")}, Clock: retry.System{}}
		isSet, err := setter.SetProviderID(t.Context(), "elemental://default/"+m.Name)
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(isSet).To(BeTrue())
		r.Expect(c.node(m).Spec.ProviderID).To(Equal("elemental://default/" + m.Name))
		r.Expect(c.node(m).Status.NodeInfo.KubeletVersion).To(Equal("v1.36.3"))
	}
	r.Expect(c.node(first).Labels).To(HaveKey("node-role.kubernetes.io/control-plane"))
	r.Expect(c.node(worker).Labels).NotTo(HaveKey("node-role.kubernetes.io/control-plane"))

	rules, err := rewrite.New(protocol.Endpoint{Host: "127.0.0.9", Port: 6443, Former: []string{c.endpoint.String()}})
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(publish.Publish(t.Context(), first.Root, rules)).To(Succeed())
	for _, want := range []client.ObjectKey{
		{Namespace: "kube-public", Name: "cluster-info"}, {Namespace: "kube-system", Name: "kubeadm-config"}, {Namespace: "kube-system", Name: "kube-proxy"},
	} {
		object := &corev1.ConfigMap{}
		r.Expect(c.admin().Get(t.Context(), want, object)).To(Succeed())
		r.Expect(object.Data).To(ContainElement(ContainSubstring("127.0.0.9:6443")), want.Name)
		r.Expect(object.Data).NotTo(ContainElement(ContainSubstring(c.endpoint.String())), want.Name)
	}
}

// Only cluster-info and health checks can be read without credentials.
func TestCredentials(t *testing.T) {
	r := newRig(t, workload.Options{})
	m := r.machine()
	c := r.cluster(m, 0)
	r.Expect(c.ready(m, anyAddress())).To(Equal(200))
	r.Expect(c.get(m, anyAddress(), "/api/v1/namespaces/kube-public/configmaps/cluster-info", nil)).To(Equal(200))
	r.Expect(c.get(m, anyAddress(), "/api/v1/nodes", nil)).To(Equal(401))
	r.Expect(c.get(m, anyAddress(), "/api/v1/nodes", func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return stranger(r), nil })).To(Equal(0), "no handshake")
}

// A join fails if the endpoint, the CA, the token or the node's name is wrong.
func TestJoinRefused(t *testing.T) {
	r := newRig(t, workload.Options{JoinTimeout: 50 * time.Millisecond})
	first := r.machine()
	c := r.cluster(first, 0)
	other := &cluster{rig: r, ca: authorities()[1], etcdCA: authorities()[2], endpoint: c.endpoint}
	dead := &cluster{rig: r, ca: c.ca, etcdCA: c.etcdCA, endpoint: netip.AddrPortFrom(r.machine().Address, 6443)}
	far := &cluster{rig: r, ca: c.ca, etcdCA: c.etcdCA, endpoint: netip.MustParseAddrPort("192.0.2.1:6443")}
	namesake := r.machine()
	namesake.Hostname = first.Hostname
	expired := &cluster{rig: newRig(t, workload.Options{JoinTimeout: 50 * time.Millisecond}), ca: c.ca, etcdCA: c.etcdCA}
	for name, tc := range map[string]struct {
		c    *cluster
		m    fleet.Machine
		want string
	}{
		"dead endpoint":      {dead, r.machine(), "connection refused"},
		"another authority":  {other, r.machine(), "another certificate authority"},
		"another machine":    {far, r.machine(), "of the loopback"},
		"name of a live one": {c, namesake, "status Ready already exists"},
	} {
		r.Expect(tc.c.bootstrap(tc.m, tc.c.joinData(tc.m, false))).To(MatchError(ContainSubstring(tc.want)), name)
	}
	r.Expect(c.bootstrap(first, c.joinData(first, false))).To(MatchError(ContainSubstring("has to be reset first")))

	m := expired.machine()
	expired.endpoint = netip.AddrPortFrom(m.Address, 6443)
	r.Expect(expired.bootstrap(m, expired.initData(m))).To(Succeed())
	late := expired.machine()
	r.Expect(expired.bootstrap(late, expired.joinData(late, false))).To(MatchError(ContainSubstring("401 Unauthorized")), "no such token")
	expired.allow(token, time.Now().Add(-time.Second))
	r.Expect(expired.bootstrap(late, expired.joinData(late, false))).To(MatchError(ContainSubstring("401 Unauthorized")), "an old token")
}

// Two clusters in one process are separate.
func TestSideBySide(t *testing.T) {
	r := newRig(t, workload.Options{})
	a, b := r.cluster(r.machine(), 0), r.cluster(r.machine(), 1)
	worker := r.machine()
	a.join(worker, false)
	nodes := &corev1.NodeList{}
	r.Expect(a.admin().List(t.Context(), nodes)).To(Succeed())
	r.Expect(nodes.Items).To(HaveLen(2))
	r.Expect(b.admin().List(t.Context(), nodes)).To(Succeed())
	r.Expect(nodes.Items).To(HaveLen(1))
	crossed := &cluster{rig: r, ca: a.ca, endpoint: b.endpoint}
	r.Expect(crossed.admin().List(t.Context(), nodes)).NotTo(Succeed())
}

// One of three members may fail, not two, and the leader is always a running member.
func TestQuorum(t *testing.T) {
	r := newRig(t, workload.Options{JoinTimeout: 50 * time.Millisecond})
	c, hosts := r.of(3)
	leader := func(at fleet.Machine) string {
		member, err := c.etcd(t.Context(), at)
		r.Expect(err).NotTo(HaveOccurred())
		defer func() { _ = member.Close() }()
		all, err := member.Members(t.Context())
		r.Expect(err).NotTo(HaveOccurred())
		r.Expect(all).To(HaveLen(3))
		for _, one := range all {
			if one.ID == member.LeaderID {
				return one.Name
			}
		}
		return ""
	}
	r.Expect(leader(hosts[2])).To(Equal(hosts[0].Hostname))

	r.Halt(hosts[0])
	r.Expect(c.ready(hosts[0], hosts[0].Address)).To(Equal(0), "a host without power does not answer")
	c.endpoint = netip.AddrPortFrom(hosts[1].Address, 6443)
	r.Expect(leader(hosts[2])).To(Equal(hosts[1].Hostname))
	dead, cancel := context.WithTimeout(t.Context(), failTimeout)
	defer cancel()
	_, err := c.etcd(dead, hosts[0])
	r.Expect(err).To(HaveOccurred(), "a dead member cannot be reached")

	r.Halt(hosts[1])
	r.Expect(c.ready(hosts[2], anyAddress())).To(Equal(500), "one of three members is no majority")
	r.Expect(r.bootstrap(r.machine(), c.joinData(fleet.Machine{Hostname: "late"}, false))).NotTo(Succeed())
	r.Expect(r.Boot(t.Context(), hosts[0])).To(Succeed())
	r.Expect(c.ready(hosts[2], anyAddress())).To(Equal(200))
	r.Expect(c.ready(hosts[0], anyAddress())).To(Equal(200))
}

// Removing an etcd member stops its API server, and deleting a Node deletes its Pods.
func TestMemberRemoved(t *testing.T) {
	r := newRig(t, workload.Options{})
	c, hosts := r.of(3)
	pods := func(of fleet.Machine) (names []string) {
		list := &corev1.PodList{}
		r.Expect(c.admin().List(t.Context(), list, client.MatchingFields{"spec.nodeName": of.Hostname})).To(Succeed())
		for _, pod := range list.Items {
			names = append(names, pod.Name)
		}
		return names
	}
	r.Expect(pods(hosts[2])).To(HaveLen(4))
	r.Expect(c.admin().Delete(t.Context(), c.node(hosts[2]))).To(Succeed())
	r.Eventually(func() []string { return pods(hosts[2]) }).Should(ConsistOf("etcd-" + hosts[2].Hostname))

	member, err := c.etcd(t.Context(), hosts[0])
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = member.Close() }()
	all, err := member.Members(t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	for _, one := range all {
		if one.Name == hosts[1].Hostname {
			r.Expect(member.RemoveMember(t.Context(), one.ID)).To(Succeed())
		}
	}
	r.Expect(c.ready(hosts[1], anyAddress())).To(Equal(500))
	r.Expect(c.ready(hosts[0], anyAddress())).To(Equal(200))
	r.Halt(hosts[1])
	r.Expect(c.ready(hosts[0], anyAddress())).To(Equal(200), "both remaining members run")

	r.Expect(r.Remove(hosts[1])).To(Succeed())
	r.Expect(r.Remove(hosts[1])).To(Succeed(), "removing a host twice")
	left, err := os.ReadDir(filepath.Join(hosts[1].Root, "etc"))
	r.Expect(err).NotTo(HaveOccurred())
	r.Expect(left).To(BeEmpty())
	// The control plane deletes the Node of a removed host.
	r.Expect(c.admin().Delete(t.Context(), c.node(hosts[1]), client.GracePeriodSeconds(0))).To(Succeed())
	c.join(hosts[1], true)
	r.Expect(c.ready(hosts[1], anyAddress())).To(Equal(200), "a host joins again after its removal")
}

// A refused port can be reached from the host itself only, and so can all ports of a disconnected
// host.
func TestRefusedAndCutOff(t *testing.T) {
	r := newRig(t, workload.Options{})
	c, hosts := r.of(3)
	m, at := hosts[1], netip.AddrPortFrom(hosts[1].Address, 6443)
	reach := func(from netip.Addr) (codes []int) {
		codes = append(codes, c.ready(m, from), 0)
		if conn, err := dialer(from).DialContext(t.Context(), "tcp", netip.AddrPortFrom(m.Address, 2379).String()); err == nil {
			// A refused client is connected for a moment. A server that is reached shows its certificate.
			_ = conn.SetDeadline(time.Now().Add(soon))
			_ = tls.Client(conn, &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(tls.ConnectionState) error {
				codes[1] = 1
				return nil
			}}).HandshakeContext(t.Context())
			_ = conn.Close()
		}
		return codes
	}
	r.Expect(reach(anyAddress())).To(Equal([]int{200, 1}))
	r.Refuse(m, at)
	r.Expect(reach(anyAddress())).To(Equal([]int{0, 1}))
	r.Expect(reach(m.Address)).To(Equal([]int{200, 1}))
	r.Refuse(m, netip.AddrPort{})
	r.Expect(reach(anyAddress())).To(Equal([]int{200, 1}))
	r.Network(m, false)
	r.Expect(reach(anyAddress())).To(Equal([]int{0, 0}))
	r.Expect(reach(m.Address)).To(Equal([]int{500, 1}), "a single member has no quorum")
	r.Network(m, true)
	r.Refuse(m, at)
	r.Halt(m)
	r.Expect(r.Boot(t.Context(), m)).To(Succeed())
	r.Expect(reach(anyAddress())).To(Equal([]int{200, 1}), "a reboot ends a refusal")
}

// A power cut ends open connections.
func TestPowerCutEndsWatches(t *testing.T) {
	r := newRig(t, workload.Options{})
	m := r.machine()
	c := r.cluster(m, 0)
	admin, err := client.NewWithWatch(c.config(), client.Options{})
	r.Expect(err).NotTo(HaveOccurred())
	watch, err := admin.Watch(t.Context(), &corev1.NodeList{})
	r.Expect(err).NotTo(HaveOccurred())
	defer watch.Stop()
	r.Halt(m)
	r.Eventually(watch.ResultChan()).Should(BeClosed())
}

// A power cut also ends connections that are forwarded through the host to a Pod of another host.
func TestPowerCutEndsForwarding(t *testing.T) {
	r := newRig(t, workload.Options{})
	c, hosts := r.of(3)
	member, err := c.etcd(t.Context(), hosts[1])
	r.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = member.Close() }()
	_, err = member.Members(t.Context())
	r.Expect(err).NotTo(HaveOccurred())
	r.Halt(hosts[0])
	dead, cancel := context.WithTimeout(t.Context(), failTimeout)
	defer cancel()
	_, err = member.Members(dead)
	r.Expect(err).To(HaveOccurred())
	r.Expect(c.ready(hosts[1], anyAddress())).To(Equal(200), "the member still works")
}

// No server runs after a power cut has ended a bootstrap.
func TestPowerCutInBootstrap(t *testing.T) {
	r := newRig(t, workload.Options{})
	m := r.machine()
	c := &cluster{rig: r, ca: authorities()[0], etcdCA: authorities()[2], endpoint: netip.AddrPortFrom(m.Address, 6443)}
	ctx, cancel := context.WithCancel(t.Context())
	err := r.Bootstrap(ctx, m, []byte(c.initData(m)), "cloud-config", func(step string) {
		if step == "kubeadm init" {
			cancel()
			r.Halt(m)
		}
	})
	r.Expect(err).To(MatchError(context.Canceled))
	r.Expect(c.ready(m, anyAddress())).To(Equal(0))
	r.Expect(r.Remove(m)).To(Succeed())
	r.Expect(r.bootstrap(m, c.initData(m))).To(Succeed())
	r.Expect(c.ready(m, anyAddress())).To(Equal(200))
}

// Removing the last host drops the cluster, and Close stops everything.
func TestNothingIsLeft(t *testing.T) {
	r := newRig(t, workload.Options{JoinTimeout: 50 * time.Millisecond})
	a, b := r.machine(), r.machine()
	c := r.cluster(a, 0)
	r.Expect(r.Remove(a)).To(Succeed())
	r.Expect(c.ready(a, anyAddress())).To(Equal(0))
	r.Expect((&cluster{rig: r}).bootstrap(b, c.joinData(b, false))).NotTo(Succeed())
	again := r.cluster(a, 0)
	r.Expect(again.admin().Get(t.Context(), client.ObjectKey{Name: b.Hostname}, &corev1.Node{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))

	r.Close()
	r.Expect(again.ready(a, anyAddress())).To(Equal(0))
	r.Expect(again.bootstrap(b, again.initData(b))).To(MatchError(ContainSubstring("has ended")))
}
