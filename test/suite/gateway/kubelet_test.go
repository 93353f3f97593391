package gateway

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// kubelet is a stand-in for a kubelet: a program in a container sends its input back, and its
// log is one line that is followed forever.
func kubelet(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasPrefix(r.URL.Path, "/exec/"):
		exec(w, r)
	case strings.HasPrefix(r.URL.Path, "/containerLogs/"):
		_, _ = io.WriteString(w, "hello\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	default:
		http.NotFound(w, r)
	}
}

func exec(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"v4.channel.k8s.io"}); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	streams := make(chan httpstream.Stream, 3)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		streams <- s
		return nil
	})
	if conn == nil {
		return
	}
	defer func() { _ = conn.Close() }()
	byType := map[string]httpstream.Stream{}
	for len(byType) < 3 {
		select {
		case s := <-streams:
			byType[s.Headers().Get(corev1.StreamType)] = s
		case <-conn.CloseChan():
			return
		}
	}
	_, _ = io.Copy(byType[corev1.StreamTypeStdout], byType[corev1.StreamTypeStdin])
	_ = byType[corev1.StreamTypeStdout].Close()
	_ = json.NewEncoder(byType[corev1.StreamTypeError]).Encode(metav1.Status{Status: metav1.StatusSuccess})
	_ = byType[corev1.StreamTypeError].Close()
	<-conn.CloseChan()
}

// pod creates a Pod on a Node with that kubelet in the workload cluster.
func (r *rig) pod(name string) {
	server := httptest.NewTLSServer(http.HandlerFunc(kubelet))
	r.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	host, port, err := net.SplitHostPort(server.Listener.Addr().String())
	r.Expect(err).NotTo(HaveOccurred())
	number, err := strconv.ParseInt(port, 10, 32)
	r.Expect(err).NotTo(HaveOccurred())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
	r.create(r.child, node)
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: host}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(number)
	r.Expect(r.child.Client(r.t).Status().Update(r.t.Context(), node)).To(Succeed())
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec:       corev1.PodSpec{NodeName: "node", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	r.create(r.child, pod)
	r.Expect(r.child.Client(r.t).Get(r.t.Context(), client.ObjectKeyFromObject(pod), pod)).To(Succeed())
}
