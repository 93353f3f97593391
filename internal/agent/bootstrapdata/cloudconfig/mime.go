package cloudconfig

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"
	"unicode/utf8"

	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata"
	"github.com/capi-elemental/cluster-api-provider-elemental/internal/agent/bootstrapdata/document"
)

// Limits of a MIME message.
const (
	maxParts = 256
	maxDepth = 8
)

// part is one document of bootstrap data.
type part struct {
	// label names the part in errors. It is "" if the part is the whole document.
	label string
	// name is the file name under which cloud-init stores the part.
	name string
	// mime is the MIME type. It is detected from the text if the header is too general.
	mime string
	text string
	// merge is the header with the mergers, see mergersOf.
	merge string
}

// messageStart is the number of bytes in which cloud-init looks for the header of
// a MIME message.
const messageStart = 4096

// split returns the parts of a MIME message. Any other document is one part.
func split(text string) ([]part, error) {
	start := text
	if len(start) > messageStart {
		start = start[:messageStart]
	}
	kind := detectType(text)
	if kind == "" && strings.Contains(strings.ToLower(start), "mime-version:") {
		s := &splitter{}
		return s.message(text)
	}
	if kind == "" && strings.HasPrefix(strings.ToLower(text), "content-type:") {
		return nil, bootstrapdata.ErrorAt(1, "the header \"MIME-Version: 1.0\" is missing; without it cloud-init would not take the document for a MIME message")
	}
	if kind == "" {
		return nil, bootstrapdata.ErrorAt(1, "the header %q is missing; cloud-init would ignore the document too", headerCloudConfig)
	}
	return []part{{name: partName(1), mime: kind, text: text}}, nil
}

// partName returns the name that cloud-init gives a part without a name.
func partName(number int) string { return fmt.Sprintf("part-%03d", number) }

type splitter struct {
	parts []part
	size  int
}

func (s *splitter) message(text string) ([]part, error) {
	message, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		return nil, bootstrapdata.ErrorAt(1, "reading the headers of the MIME message: %v", err)
	}
	if err := s.entity(textproto.MIMEHeader(message.Header), message.Body, 0); err != nil {
		return nil, err
	}
	if len(s.parts) == 0 {
		return nil, bootstrapdata.ErrorAt(0, "the MIME message has no parts")
	}
	return s.parts, nil
}

// entity reads a part, or the parts within a multipart message.
func (s *splitter) entity(header textproto.MIMEHeader, body io.Reader, depth int) error {
	label := fmt.Sprintf("part %d", len(s.parts)+1)
	kind, params, err := mediaType(header)
	if err != nil {
		return bootstrapdata.InPart(label, bootstrapdata.ErrorAt(0, "reading its Content-Type: %v", err))
	}
	if !strings.HasPrefix(kind, "multipart/") {
		if len(s.parts) == maxParts {
			return bootstrapdata.ErrorAt(0, "the MIME message has more than the %d parts allowed", maxParts)
		}
		return bootstrapdata.InPart(label, s.addPart(label, kind, params, header, body))
	}
	switch {
	case params["boundary"] == "":
		return bootstrapdata.InPart(label, bootstrapdata.ErrorAt(0, "the type %s has no boundary", kind))
	case depth == maxDepth:
		return bootstrapdata.InPart(label, bootstrapdata.ErrorAt(0, "multipart messages are nested too deeply"))
	}
	text, err := io.ReadAll(body)
	if err == nil && !bytes.Contains(text, []byte("--"+params["boundary"]+"--")) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return bootstrapdata.InPart(label, cutOff(err))
	}
	r := multipart.NewReader(bytes.NewReader(text), params["boundary"])
	for {
		p, err := r.NextRawPart()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return bootstrapdata.InPart(label, bootstrapdata.ErrorAt(0, "reading a part of the MIME message: %v", err))
		}
		if err := s.entity(p.Header, p, depth+1); err != nil {
			return err
		}
	}
}

func mediaType(header textproto.MIMEHeader) (string, map[string]string, error) {
	text := header.Get("Content-Type")
	if text == "" {
		return typePlain, nil, nil
	}
	return mime.ParseMediaType(text)
}

func (s *splitter) addPart(label, kind string, params map[string]string, header textproto.MIMEHeader, body io.Reader) error {
	p := part{label: label, name: params["name"], mime: kind, merge: header.Get("Merge-Type")}
	if p.merge == "" {
		p.merge = header.Get("X-Merge-Type")
	}
	if text := header.Get("Content-Disposition"); text != "" {
		_, disposition, err := mime.ParseMediaType(text)
		if err != nil {
			return bootstrapdata.ErrorAt(0, "reading its Content-Disposition: %v", err)
		}
		if disposition["filename"] != "" {
			p.name = disposition["filename"]
		}
	}
	if p.name == "" {
		p.name = partName(len(s.parts) + 1)
	} else {
		p.label += " (" + p.name + ")"
	}
	data, err := decodeBody(header.Get("Content-Transfer-Encoding"), body)
	if err != nil {
		return bootstrapdata.InPart(p.label, err)
	}
	if err := p.read(data); err != nil {
		return bootstrapdata.InPart(p.label, err)
	}
	if s.size += len(p.text); s.size > document.MaxDocument {
		return bootstrapdata.InPart(p.label, bootstrapdata.ErrorAt(0, "the parts together have more than the %d bytes allowed", document.MaxDocument))
	}
	s.parts = append(s.parts, p)
	return nil
}

// decodeBody decodes the transfer encoding (RFC 2045, section 6).
func decodeBody(encoding string, body io.Reader) ([]byte, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "7bit", "8bit", "binary":
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		text, err := io.ReadAll(body)
		if err != nil {
			return nil, cutOff(err)
		}
		data, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(string(text)), ""))
		if err != nil {
			return nil, bootstrapdata.ErrorAt(0, "its content is bad base64: %v", err)
		}
		return data, nil
	default:
		return nil, bootstrapdata.ErrorAt(0, "unknown Content-Transfer-Encoding %q; known are 7bit, 8bit, binary, base64 and quoted-printable", encoding)
	}
	data, err := io.ReadAll(body)
	if err != nil {
		return nil, cutOff(err)
	}
	return data, nil
}

func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return bootstrapdata.ErrorAt(0, "the closing boundary is missing; the MIME message is cut off")
	}
	return bootstrapdata.ErrorAt(0, "decoding its content: %v", err)
}

// read decompresses a part and sets its type. The type is detected from the text
// in the same cases as in cloud-init.
func (p *part) read(data []byte) error {
	gzipped := bytes.HasPrefix(data, []byte{0x1f, 0x8b})
	switch {
	case isCompressed(p.mime):
		if !gzipped {
			return bootstrapdata.ErrorAt(0, "its type is %s, but it is not gzip data; cloud-init would drop it", p.mime)
		}
		p.mime = typePlain
	case gzipped:
		return bootstrapdata.ErrorAt(0, "it is gzip data, but its type is %s, with which cloud-init would not unpack it; set Content-Type to application/gzip", p.mime)
	case !utf8.Valid(data):
		return bootstrapdata.ErrorAt(0, "it is not UTF-8 text")
	}
	text, err := document.Text(data)
	if err != nil {
		return err
	}
	p.text = text
	if p.mime == typePlain || p.mime == typeUnknown || p.mime == typeScript {
		if found := detectType(text); found != "" {
			p.mime = found
		}
	}
	if p.mime == typePlain || p.mime == typeUnknown {
		return bootstrapdata.ErrorAt(1, "the header that says what it is, such as %q or \"#!/bin/sh\", is missing; cloud-init would ignore it", headerCloudConfig)
	}
	return nil
}
