package bundle_test

import (
	"archive/tar"
	"bytes"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/bundle"
)

// Entries that a bundle must not have are refused, whatever the manifest says.
func TestHostileEntries(t *testing.T) {
	t.Parallel()
	at := func(list []entry, name string) *entry {
		return &list[slices.IndexFunc(list, func(e entry) bool { return e.Name == name })]
	}
	const kubeadm = "bin/kubeadm"
	for name, test := range map[string]struct {
		change func([]entry) []entry
		want   string
	}{
		"empty":                     {func([]entry) []entry { return nil }, "ends too early"},
		"manifest not first":        {func(l []entry) []entry { l[0], l[1] = l[1], l[0]; return l }, "begins with \"bin/kubeadm\""},
		"no manifest":               {func(l []entry) []entry { return l[1:] }, "begins with \"bin/kubeadm\""},
		"two manifests":             {func(l []entry) []entry { return slices.Insert(l, 1, l[0]) }, "a second bundle.json"},
		"manifest at the end again": {func(l []entry) []entry { return append(l, l[0]) }, "a second bundle.json"},
		"manifest twice instead of the last file": {
			func(l []entry) []entry { l[len(l)-1] = l[0]; return l }, "a second bundle.json",
		},
		"manifest as a link": {func(l []entry) []entry {
			l[0] = entry{Header: tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeSymlink, Name: l[0].Name, Linkname: "/etc/passwd", Mode: 0o644, ModTime: time.Unix(0, 0)}}
			return l
		}, "entry of type '2'"},
		"file missing":      {func(l []entry) []entry { return slices.Delete(l, 2, 3) }, "lacks bin/kubectl"},
		"last file missing": {func(l []entry) []entry { return l[:len(l)-1] }, "lacks units/kubelet.service"},
		"file twice":        {func(l []entry) []entry { return slices.Insert(l, 2, l[1]) }, "holds bin/kubeadm a second time"},
		"other order":       {func(l []entry) []entry { l[1], l[2] = l[2], l[1]; return l }, "lacks bin/kubeadm, or has it in another order"},
		"file not listed":   {func(l []entry) []entry { return slices.Insert(l, 3, regular("bin/more", 0o755, "x")) }, "holds \"bin/more\""},
		"path traversal":    {func(l []entry) []entry { at(l, kubeadm).Name = "../../etc/passwd"; return l }, "holds \"../../etc/passwd\""},
		"absolute name":     {func(l []entry) []entry { at(l, kubeadm).Name = "/etc/passwd"; return l }, "holds \"/etc/passwd\""},
		"unclean name":      {func(l []entry) []entry { at(l, kubeadm).Name = "./bin/kubeadm"; return l }, "holds \"./bin/kubeadm\""},
		"folder": {func(l []entry) []entry {
			return slices.Insert(l, 1, entry{Header: tar.Header{Typeflag: tar.TypeDir, Name: "bin/"}})
		}, "holds \"bin/\""},
		"folder for a file": {func(l []entry) []entry { e := at(l, kubeadm); *e = typed(*e, tar.TypeDir); return l }, "entry of type '5'"},
		"symbolic link":     {func(l []entry) []entry { e := at(l, kubeadm); *e = typed(*e, tar.TypeSymlink); return l }, "entry of type '2'"},
		"hard link":         {func(l []entry) []entry { e := at(l, kubeadm); *e = typed(*e, tar.TypeLink); return l }, "entry of type '1'"},
		"character device":  {func(l []entry) []entry { e := at(l, kubeadm); *e = typed(*e, tar.TypeChar); return l }, "entry of type '3'"},
		"block device":      {func(l []entry) []entry { e := at(l, kubeadm); *e = typed(*e, tar.TypeBlock); return l }, "entry of type '4'"},
		"pipe":              {func(l []entry) []entry { e := at(l, kubeadm); *e = typed(*e, tar.TypeFifo); return l }, "entry of type '6'"},
		"link in a header":  {func(l []entry) []entry { at(l, kubeadm).Linkname = "/etc/passwd"; return l }, "a link or a device in its header"},
		"owner":             {func(l []entry) []entry { at(l, kubeadm).Uid = 1000; return l }, "has an owner"},
		"named owner":       {func(l []entry) []entry { at(l, kubeadm).Gname = "wheel"; return l }, "has an owner"},
		"time":              {func(l []entry) []entry { at(l, kubeadm).ModTime = time.Unix(1, 0); return l }, "a time"},
		"setuid":            {func(l []entry) []entry { at(l, kubeadm).Mode = 0o4755; return l }, "has the mode 4755"},
		"other mode":        {func(l []entry) []entry { at(l, kubeadm).Mode = 0o777; return l }, "has the mode 0777"},
		"size lie":          {func(l []entry) []entry { e := at(l, kubeadm); e.content += "x"; e.Size++; return l }, "by its header, and the manifest says"},
		"wrong digest": {func(l []entry) []entry {
			e := at(l, kubeadm)
			e.content = strings.ToUpper(e.content)
			return l
		}, "the SHA-256 of bin/kubeadm"},
		"extended header": {func(l []entry) []entry {
			e := at(l, kubeadm)
			e.Format, e.PAXRecords = tar.FormatPAX, map[string]string{"SCHILY.xattr.security.capability": "all"}
			return l
		}, "has a header of format PAX"},
		"GNU header": {func(l []entry) []entry { at(l, kubeadm).Format = tar.FormatGNU; return l }, "has a header of format GNU"},
		"global header": {func(l []entry) []entry {
			return slices.Insert(l, 1, entry{Header: tar.Header{Typeflag: tar.TypeXGlobalHeader, Name: "global", PAXRecords: map[string]string{"comment": "x"}}})
		}, "which its manifest does not list"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			m, files := sample()
			data := compress(t, archive(t, test.change(entries(t, m, files))))
			if _, err := readAll(t.Context(), bytes.NewReader(data), bundle.DefaultLimits()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// typed makes an entry of another type, without content.
func typed(e entry, kind byte) entry {
	h := tar.Header{Format: tar.FormatUSTAR, Typeflag: kind, Name: e.Name, Mode: e.Mode, ModTime: e.ModTime}
	if kind == tar.TypeSymlink || kind == tar.TypeLink {
		h.Linkname = "/etc/passwd"
	}
	return entry{Header: h}
}

// sparse is a header of a file with holes, which the standard library does not write: a
// few bytes that would become a gibibyte.
func sparse(t *testing.T, list []entry) []byte {
	t.Helper()
	var out bytes.Buffer
	out.Write(archive(t, list[:1])[:512+(len(list[0].content)+511)/512*512])
	records := map[string]string{"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": list[1].Name, "GNU.sparse.realsize": "1073741824"}
	w := tar.NewWriter(&out)
	var body strings.Builder
	for _, key := range []string{"GNU.sparse.major", "GNU.sparse.minor", "GNU.sparse.name", "GNU.sparse.realsize"} {
		record := " " + key + "=" + records[key] + "\n"
		body.WriteString(string(rune('0'+(len(record)+2)/10)) + string(rune('0'+(len(record)+2)%10)) + record)
	}
	header := tar.Header{Format: tar.FormatUSTAR, Typeflag: tar.TypeReg, Name: "extended", Mode: 0o644, Size: int64(body.Len()), ModTime: time.Unix(0, 0)}
	if err := w.WriteHeader(&header); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(w, body.String()); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	extended := out.Bytes()
	at := len(extended) - 1024
	extended[at+156] = tar.TypeXHeader
	sum := 0
	for i := range 512 {
		b := int(extended[at+i])
		if i >= 148 && i < 156 {
			b = ' '
		}
		sum += b
	}
	copy(extended[at+148:], []byte{byte('0' + sum>>15&7), byte('0' + sum>>12&7), byte('0' + sum>>9&7), byte('0' + sum>>6&7), byte('0' + sum>>3&7), byte('0' + sum&7), 0, ' '})
	return append(extended, archive(t, []entry{regular(list[1].Name, 0o755, "1\n0\n1\n"+strings.Repeat("\x00", 506)+"x")})...)
}

func TestHostileStreams(t *testing.T) {
	t.Parallel()
	m, files := sample()
	whole := archive(t, entries(t, m, files))
	zeros := make([]byte, 64<<20)
	huge := entries(t, m, files)
	huge[0].content = strings.Repeat(" ", 2<<20)
	huge[0].Size = int64(len(huge[0].content))
	for name, test := range map[string]struct {
		data []byte
		want string
	}{
		"nothing":                {nil, "ends too early"},
		"no zstd":                {whole, "magic number mismatch"},
		"no tar":                 {compress(t, []byte(strings.Repeat("x", 2048))), "looking for bundle.json"},
		"cut in the compression": {compress(t, whole)[:200], "unexpected EOF"},
		"without an end":         {compress(t, whole[:len(whole)-1024]), "ends too early"},
		"half an end":            {compress(t, whole[:len(whole)-512]), "ends too early"},
		"cut in a header":        {compress(t, whole[:len(whole)-2048+100]), "unexpected EOF"},
		"cut in the manifest":    {compress(t, whole[:700]), "unexpected EOF"},
		"bytes after the end":    {compress(t, append(bytes.Clone(whole), 0)), "more in it than its manifest lists"},
		"garbage after the end":  {append(compress(t, whole), "garbage"...), "reading the end of the bundle"},
		"another frame":          {append(compress(t, whole), compress(t, zeros)...), "more in it than its manifest lists"},
		"bomb":                   {compress(t, append(bytes.Clone(whole), zeros...)), "more in it than its manifest lists"},
		"bomb of zeros":          {compress(t, zeros), "ends too early"},
		"bomb as the manifest":   {compress(t, archive(t, huge)), "has 2097152 bytes, and the limit is"},
		"sparse file":            {compress(t, sparse(t, entries(t, m, files))), "has a header of format PAX"},
		"wide window":            {wideWindow(t, whole), "window of more than 1024 KiB: build it with"},
		"one wide segment":       {compress(t, append(bytes.Clone(whole), zeros...), zstd.WithSingleSegment(true)), "window of more than 1024 KiB: build it with"},
		"endless headers":        {compress(t, bytes.Repeat(longName(t), 4000)), "more in it than its manifest lists"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := readAll(t.Context(), bytes.NewReader(test.data), bundle.DefaultLimits()); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// wideWindow makes a bundle that needs more memory to decompress than a Reader has.
func wideWindow(t *testing.T, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := zstd.NewWriter(&out, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(2<<20), zstd.WithSingleSegment(false))
	if err != nil {
		t.Fatal(err)
	}
	// A flush keeps the encoder from making the window as small as the data.
	if _, err := w.Write(data[:512]); err != nil {
		t.Fatal(err)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(data[512:]); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// longName is a header for the long name of a file that does not come.
func longName(t *testing.T) []byte {
	t.Helper()
	return archive(t, []entry{{content: "x", Header: tar.Header{
		Format: tar.FormatGNU, Typeflag: tar.TypeReg, Name: strings.Repeat("n", 300), Mode: 0o644, Size: 1, ModTime: time.Unix(0, 0),
	}}})[:1024]
}
