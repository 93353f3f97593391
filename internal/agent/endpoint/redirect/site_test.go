package redirect_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/oscommand"
)

// patience bounds each step of the test in the kernel.
const patience = 20 * time.Second

// family has the addresses of one family of IP.
type family struct {
	name string
	// network is what follows an address, and clients that of the client.
	network, clientHost string
	// host is the address of the endpoint's host.
	host, endpoint string
	// first and second are other API servers.
	peerHosts     []string
	first, second string
	// service is an address that kube-proxy translates to the endpoint. It has a rule for the
	// endpoint itself too.
	serviceHost, service      string
	kubeProxyTable, kubeProxy string
}

func ipv4() family {
	return family{
		name: "IPv4", network: "/24", clientHost: "10.0.0.9", host: "10.0.0.1", endpoint: "10.0.0.1:6443",
		peerHosts: []string{"10.0.0.2", "10.0.0.3"}, first: "10.0.0.2:6443", second: "10.0.0.3:7443",
		serviceHost: "10.96.0.1", service: "10.96.0.1:443", kubeProxyTable: "ip kube-proxy",
		kubeProxy: "table ip kube-proxy { chain nat { type nat hook prerouting priority -100; ip daddr 10.96.0.1 tcp dport 443 dnat to 10.0.0.1:6443; ip daddr 10.0.0.1 tcp dport 6443 dnat to 10.0.0.1:6443; }; }",
	}
}

func ipv6() family {
	return family{
		name: "IPv6", network: "/64", clientHost: "fd00::9", host: "fd00::1", endpoint: "[fd00::1]:6443",
		peerHosts: []string{"fd00::2", "fd00::3"}, first: "[fd00::2]:6443", second: "[fd00::3]:7443",
		serviceHost: "fd96::1", service: "[fd96::1]:443", kubeProxyTable: "ip6 kube-proxy",
		kubeProxy: "table ip6 kube-proxy { chain nat { type nat hook prerouting priority -100; ip6 daddr fd96::1 tcp dport 443 dnat to [fd00::1]:6443; ip6 daddr fd00::1 tcp dport 6443 dnat to [fd00::1]:6443; }; }",
	}
}

// namespace is a network namespace; nil is that of the test.
type namespace struct{ pid int }

// site is a network with the host of the endpoint, which is the test's own namespace, a client
// and another host of the control plane.
type site struct{ client, peer *namespace }

// newSite connects all three by a bridge.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{client: newNamespace(t), peer: newNamespace(t)}
	for path, value := range map[string]string{
		"ipv4/ip_forward": "1", "ipv6/conf/all/forwarding": "1",
		// The bridge stands for a switch, which has no packet filter.
		"bridge/bridge-nf-call-iptables": "0", "bridge/bridge-nf-call-ip6tables": "0",
	} {
		err := os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
	s.ip(t, nil, "link set lo up", "link add br0 type bridge", "link set br0 up")
	for name, n := range map[string]*namespace{"client": s.client, "peer": s.peer} {
		s.ip(t, nil, fmt.Sprintf("link add %s type veth peer name eth0 netns %d", name, n.pid), "link set "+name+" master br0 up")
		s.ip(t, n, "link set lo up", "link set eth0 up")
	}
	for _, f := range []family{ipv4(), ipv6()} {
		dad := ""
		if f.name == "IPv6" {
			dad = " nodad"
		}
		s.ip(t, nil, "address add "+f.host+f.network+" dev br0"+dad)
		s.ip(t, s.client, "address add "+f.clientHost+f.network+" dev eth0"+dad, "route add "+f.serviceHost+" via "+f.host)
		for _, host := range f.peerHosts {
			s.ip(t, s.peer, "address add "+host+f.network+" dev eth0"+dad)
		}
	}
	return s
}

// newNamespace returns a new namespace, which ends with the test.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	keeper := exec.CommandContext(t.Context(), "sleep", "600")
	keeper.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	if err := keeper.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keeper.Wait() }) // its context has ended
	return &namespace{pid: keeper.Process.Pid}
}

// ip runs ip in a namespace.
func (s *site) ip(t *testing.T, n *namespace, commands ...string) {
	t.Helper()
	for _, command := range commands {
		args := append([]string{"ip"}, strings.Fields(command)...)
		n.do(t, func() error {
			_, err := oscommand.System{}.Run(t.Context(), "", args...)
			return err
		})
	}
}

// nft runs a script of nft on the endpoint's host, and returns its output.
func (s *site) nft(t *testing.T, script string) string {
	t.Helper()
	out, err := oscommand.System{}.Run(t.Context(), script, "nft", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// do calls f in the namespace.
func (n *namespace) do(t *testing.T, f func() error) {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		if n == nil {
			result <- f()
			return
		}
		// The thread ends with the goroutine, because nothing unlocks it.
		runtime.LockOSThread()
		file, err := os.Open("/proc/" + strconv.Itoa(n.pid) + "/ns/net")
		if err == nil {
			err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET)
			err = errors.Join(err, file.Close())
		}
		if err == nil {
			err = f()
		}
		result <- err
	}()
	if err := <-result; err != nil {
		t.Fatal(err)
	}
}

// server says its name to each connection, and then what that says.
type server struct {
	address string
	opened  chan net.Conn
}

func serve(t *testing.T, n *namespace, address, name string) *server {
	t.Helper()
	var listener net.Listener
	n.do(t, func() (err error) {
		listener, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
		return err
	})
	t.Cleanup(func() { _ = listener.Close() })
	s := &server{address: address, opened: make(chan net.Conn, 100)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			s.opened <- conn
			go func() {
				_, _ = fmt.Fprintln(conn, name)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return s
}

// accepted returns the server's end of a connection.
func (s *server) accepted(t *testing.T, of *connection) *connection {
	t.Helper()
	for {
		select {
		case conn := <-s.opened:
			if conn.RemoteAddr().String() == of.conn.LocalAddr().String() {
				return &connection{conn: conn, reader: bufio.NewReader(conn)}
			}
		case <-time.After(patience):
			t.Fatal("the server has no such connection")
		}
	}
}

// drain forgets the connections so far.
func (s *server) drain() {
	for len(s.opened) > 0 {
		<-s.opened
	}
}

// connection is one end of a connection.
type connection struct {
	conn   net.Conn
	reader *bufio.Reader
}

// connect connects from a namespace, to a server with that name. Nothing is sent to keep the
// connection alive.
func connect(t *testing.T, from *namespace, to, name string) *connection {
	t.Helper()
	c := &connection{}
	from.do(t, func() (err error) {
		c.conn, err = (&net.Dialer{Timeout: patience, KeepAlive: -1}).DialContext(context.Background(), "tcp", to)
		return err
	})
	t.Cleanup(func() { _ = c.conn.Close() })
	c.reader = bufio.NewReader(c.conn)
	if got, err := c.line(); got != name {
		t.Fatalf("connected to %q instead of %q: %v", got, name, err)
	}
	return c
}

func (c *connection) line() (string, error) {
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	line, err := c.reader.ReadString('\n')
	return strings.TrimSpace(line), err
}

// expectEcho fails the test unless the connection still works.
func (c *connection) expectEcho(t *testing.T) {
	t.Helper()
	if _, err := fmt.Fprintln(c.conn, "echo"); err != nil {
		t.Fatal(err)
	}
	if got, err := c.line(); got != "echo" {
		t.Fatalf("got %q: %v", got, err)
	}
}

// expectReset fails the test unless the next packet of the connection ends it.
func (c *connection) expectReset(t *testing.T) {
	t.Helper()
	if err := c.end(); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the connection was not reset: %v", err)
	}
}

// expectResetBy fails the test unless the next packet of the server ends the connection.
func (c *connection) expectResetBy(t *testing.T, server net.Conn) {
	t.Helper()
	if _, err := fmt.Fprintln(server, "news"); err != nil {
		t.Fatal(err)
	}
	var err error
	for err == nil {
		_, err = c.line()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("the connection was not reset: %v", err)
	}
}

// expectEnd fails the test unless the next packet of the connection ends it. Of the server's
// end, the server itself may have seen the reset.
func (c *connection) expectEnd(t *testing.T) {
	t.Helper()
	if err := c.end(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("the connection has not ended: %v", err)
	}
}

func (c *connection) end() error {
	if _, err := fmt.Fprintln(c.conn, "echo"); err != nil {
		return err
	}
	_, err := c.line()
	return err
}
