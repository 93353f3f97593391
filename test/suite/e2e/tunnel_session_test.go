//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// usersNodePort leads to the gateway for users from this machine.
const usersNodePort = 30644

// sessionPod has a container that says the time, one that sends back what it gets, and one that
// serves a port. Hosts have only the images of Kubernetes, so the containers run programs of the
// host.
const sessionPod = `
apiVersion: v1
kind: Pod
metadata: {name: session, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - {name: clock, command: [/bin/sh, -c, "while :; do date; sleep 1; done"]}
  - {name: echo, command: [/bin/cat], stdin: true}
  - {name: serve, command: [/usr/bin/socat, "TCP-LISTEN:8080,fork,reuseaddr", "SYSTEM:echo forwarded"]}
  volumes:
  - {name: shared, emptyDir: {}}
  - {name: usr, hostPath: {path: /usr}}
  - {name: bin, hostPath: {path: /usr/bin}}
  - {name: lib, hostPath: {path: /usr/lib}}
  - {name: lib64, hostPath: {path: /usr/lib64}}
`

// runSessionPod starts sessionPod and waits until it is ready.
func (w workload) runSessionPod(ctx context.Context) {
	GinkgoHelper()
	c := w.client(ctx)
	proxy := &appsv1.DaemonSet{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "kube-proxy"}, proxy)).To(Succeed())
	pod := &corev1.Pod{}
	Expect(yaml.Unmarshal([]byte(sessionPod), pod)).To(Succeed())
	for i := range pod.Spec.Containers {
		container := &pod.Spec.Containers[i]
		container.Image, container.ImagePullPolicy = proxy.Spec.Template.Spec.Containers[0].Image, corev1.PullNever
		container.Env = []corev1.EnvVar{{Name: "PATH", Value: "/usr/sbin:/usr/bin:/bin"}}
		for _, volume := range pod.Spec.Volumes {
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: volume.Name, MountPath: "/" + volume.Name})
		}
	}
	Eventually(func() error { return client.IgnoreAlreadyExists(c.Create(ctx, pod.DeepCopy())) }).
		WithTimeout(time.Minute).Should(Succeed(), "the ServiceAccount may be missing yet")
	Eventually(func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		g.Expect(pod.Status.ContainerStatuses).To(HaveLen(3))
		g.Expect(pod.Status.ContainerStatuses).To(HaveEach(HaveField("Ready", true)), "%+v", pod.Status)
	}).WithTimeout(2 * time.Minute).Should(Succeed())
}

// userGateway is how users reach the gateway from this machine.
type userGateway struct {
	address, name string
	ca            []byte
}

// exposeGatewayForUsers makes the gateway for users reachable from this machine.
func exposeGatewayForUsers(ctx context.Context) userGateway {
	GinkgoHelper()
	manager := managerDeployment(ctx).Namespace
	exposeService(ctx, client.ObjectKey{Namespace: manager, Name: "elemental-gateway-proxy"}, usersNodePort)
	authority := &corev1.Secret{}
	Expect(management.Get(ctx, client.ObjectKey{Namespace: manager, Name: "elemental-agent-api-ca"}, authority)).To(Succeed())
	return userGateway{
		address: fmt.Sprintf("%s:%d", hosts.Management().Address, usersNodePort), name: "elemental-gateway-proxy." + manager + ".svc",
		ca: authority.Data["ca.crt"],
	}
}

// kubeconfig returns one that leads to a workload cluster, with a token.
func (g userGateway) kubeconfig(cluster client.ObjectKey, token string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters:
- name: gateway
  cluster:
    server: https://%s/clusters/%s/%s
    tls-server-name: %s
    certificate-authority-data: %s
users:
- {name: user, user: {token: %s}}
contexts:
- {name: gateway, context: {cluster: gateway, user: user}}
current-context: gateway
`, g.address, cluster.Namespace, cluster.Name, g.name, base64.StdEncoding.EncodeToString(g.ca), token)
}

// run runs kubectl as the user, with input, and returns its output without the end of line.
func (u *user) run(ctx context.Context, variables []string, input string, args ...string) string {
	GinkgoHelper()
	out, err := u.try(ctx, variables, input, args...)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// try is run for what may fail.
func (u *user) try(ctx context.Context, variables []string, input string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	cmd := u.command(ctx, variables, args...)
	cmd.Stdin = strings.NewReader(input)
	var diagnostics bytes.Buffer
	cmd.Stderr = &diagnostics
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, diagnostics.String())
	}
	return strings.TrimSpace(string(out)), nil
}

func (u *user) command(ctx context.Context, variables []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, u.kubectl, append([]string{"--kubeconfig", u.kubeconfig}, args...)...)
	cmd.Env = append(cmd.Environ(), variables...)
	return cmd
}

// program is a kubectl that runs until it is stopped.
type program struct {
	began time.Time
	stdin io.WriteCloser
	stop  func()
	ended chan struct{}

	mu  sync.Mutex
	out bytes.Buffer
}

// Write implements io.Writer for the program's output.
func (p *program) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(text)
}

func (p *program) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

func (p *program) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// start starts kubectl as the user. It runs until stop is called, at the latest until the specs
// of the container have ended.
func (u *user) start(ctx context.Context, variables []string, args ...string) *program {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &program{began: time.Now(), ended: make(chan struct{})}
	cmd := u.command(ctx, variables, args...)
	cmd.Stdout, cmd.Stderr = p, p
	var err error
	p.stdin, err = cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(cmd.Start()).To(Succeed())
	go func() {
		defer close(p.ended)
		_ = cmd.Wait()
	}()
	p.stop = func() {
		cancel()
		<-p.ended
	}
	DeferCleanup(p.stop)
	return p
}

// expectForwardedPort connects twice through a forwarded port.
func (u *user) expectForwardedPort(ctx context.Context, variables []string) {
	GinkgoHelper()
	p := u.start(ctx, variables, "port-forward", "session", ":8080")
	defer p.stop()
	listening := regexp.MustCompile(`Forwarding from (127\.0\.0\.1:\d+) ->`)
	Eventually(p.output).WithTimeout(time.Minute).Should(MatchRegexp(listening.String()))
	for range 2 {
		conn, err := (&net.Dialer{Timeout: time.Minute}).DialContext(ctx, "tcp", listening.FindStringSubmatch(p.output())[1])
		Expect(err).NotTo(HaveOccurred())
		Expect(conn.SetDeadline(time.Now().Add(time.Minute))).To(Succeed())
		got, err := io.ReadAll(conn)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(got)).To(Equal("forwarded\n"), p.output())
		Expect(conn.Close()).To(Succeed())
	}
}
