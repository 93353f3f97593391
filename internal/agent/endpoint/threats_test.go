package endpoint_test

import (
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/endpoint"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/state"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/protocol"
)

// A compromised manager has other ways into a host, but it can use the files of a
// plan only as static Pods, and cannot replace those of the distribution.
func TestThreat38_FilesElsewhere(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"/etc/cron.d/x", "/home/admin/.ssh/authorized_keys", "/etc/kubernetes/admin.conf", "/etc/kubernetes/manifests",
		"/etc/kubernetes/manifests/../x.yaml", "/etc/kubernetes/manifests/x/../../../cron.d/x", "/etc/kubernetes/manifests/x/y.yaml",
		"/etc/kubernetes//manifests/x.yaml", "/etc/kubernetes/manifests/.x.yaml", "/etc/kubernetes/manifests/",
		"etc/kubernetes/manifests/x.yaml", "/etc/kubernetes/manifests-x/x.yaml", "",
		"/etc/kubernetes/manifests/kube-apiserver.yaml", "/etc/kubernetes/manifests/etcd.yaml",
		"/var/lib/rancher/rke2/agent/pod-manifests/kube-apiserver.yaml",
	} {
		b := newBox(t)
		err := b.applier().Prepare(t.Context(), nil, []protocol.File{{Path: name, Mode: 0o600, Content: "x"}})
		if err == nil || !strings.Contains(err.Error(), "not writing") {
			t.Errorf("%q: got %v", name, err)
		}
		if found := files(b.root); len(found) > 0 {
			t.Errorf("%q: wrote %v", name, found)
		}
	}
	for _, file := range []protocol.File{
		{Path: "/etc/kubernetes/manifests/x.yaml", Mode: 0o4755},
		{Path: "/etc/kubernetes/manifests/x.yaml", Mode: 0o600, Content: strings.Repeat("x", protocol.MaxFileBytes+1)},
	} {
		if err := newBox(t).applier().Prepare(t.Context(), nil, []protocol.File{file}); err == nil {
			t.Errorf("mode %o with %d bytes was written", file.Mode, len(file.Content))
		}
	}
	if err := newBox(t).applier().Prepare(t.Context(), nil, make([]protocol.File, protocol.MaxFiles+1)); err == nil {
		t.Error("too many files were written")
	}
}

// files lists the files in a folder without those of the agent.
func files(root string) []string {
	var found []string
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !strings.HasPrefix(path, filepath.Join(root, "var/lib/elemental")) {
			found = append(found, path)
		}
		return err
	})
	return found
}

// Logs and reports name an invalid kubeconfig but never quote it: the text near
// an error may contain a key.
func TestThreat39_KubeconfigsAreNotQuoted(t *testing.T) {
	t.Parallel()
	const secret = "s3cr3tkey"
	const apiServer = "spec: {containers: [{command: [kube-apiserver, --advertise-address=10.0.0.7]}]}"
	for _, text := range []string{
		secret, "*" + secret, "users: " + secret, "users: [" + secret + "]", "users: [{name: a, user: " + secret + "}]",
		"users: [{name: a, user: {client-key-data: [" + secret + "]}}]", "clusters: {" + secret + ": [", "clusters: " + secret,
		"clusters: [{cluster: " + secret + "}]", "clusters: [{cluster: {server: https://" + former + "}}]\nusers: \"" + secret,
		"\tusers: " + secret, "users: !!binary " + secret, "contexts: " + secret + "\ncurrent-context: [" + secret + "]",
		"current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\nclusters: [{name: b, cluster: {server: \"https://10.0.0.1:6443\", certificate-authority-data: " + secret + "}}]",
		"current-context: a\ncontexts: [{name: a, context: {cluster: b, user: c}}]\nclusters: [{name: b, cluster: {server: \"https://10.0.0.1:6443\"}}]\n" +
			"users: [{name: c, user: {client-certificate-data: " + secret + ", client-key-data: " + secret + "}}]",
	} {
		b := newBox(t)
		for _, name := range []string{"admin.conf", "kubelet.conf"} {
			b.write("/etc/kubernetes/"+name, text)
		}
		b.write("/etc/kubernetes/manifests/kube-apiserver.yaml", apiServer)
		documents, err := state.OpenDir(filepath.Join(b.root, "var/lib/elemental"), b.disk)
		if err != nil {
			t.Fatal(err)
		}
		var log strings.Builder
		applier := endpoint.New(endpoint.Options{
			Documents: documents, Root: b.root, System: b.disk, Commands: b, Interfaces: b.interfaces,
			Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		})
		report, err := applier.Apply(t.Context(), &protocol.Endpoint{Host: "10.0.0.2", Port: 6443, Former: []string{former}, Publish: true}, nil)
		if err == nil {
			t.Fatalf("%q was accepted", text)
		}
		if output := log.String() + report.Message + err.Error(); strings.Contains(output, secret) {
			t.Errorf("%q is quoted: %s", text, output)
		}
	}
}
