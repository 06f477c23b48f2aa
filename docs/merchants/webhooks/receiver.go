// Receives webhooks. Start it with WEBHOOK_SECRET set, and PORT if 9000 is taken.
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

const (
	toleranceSeconds = 300
	bodyBytesMax     = 64 * 1024
)

// Whether the service signed this body, with this secret, within the last five minutes.
func isGenuine(secret, header string, body []byte) bool {
	parts := strings.Split(header, ",")
	sentAt := ""
	for _, part := range parts {
		if strings.HasPrefix(part, "t=") {
			sentAt = strings.TrimPrefix(part, "t=")
			break
		}
	}
	seconds, err := strconv.ParseUint(sentAt, 10, 40)
	if err != nil {
		return false
	}
	age := time.Now().Unix() - int64(seconds)
	if age > toleranceSeconds || age < -toleranceSeconds {
		return false
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(sentAt + "."))
	mac.Write(body)
	expected := []byte("v1=" + hex.EncodeToString(mac.Sum(nil)))
	for _, part := range parts {
		// During a rotation there are two v1. One that matches is enough.
		if hmac.Equal(expected, []byte(part)) {
			return true
		}
	}
	return false
}

func main() {
	secret := os.Getenv("WEBHOOK_SECRET")
	if secret == "" {
		log.Fatal("WEBHOOK_SECRET is not set")
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "9000"
	}
	webhooks := func(response http.ResponseWriter, request *http.Request) {
		// The raw bytes: parsed and written again, they would not be what was signed.
		body, err := io.ReadAll(http.MaxBytesReader(response, request.Body, bodyBytesMax))
		if err != nil || !isGenuine(secret, request.Header.Get("X-Service-Signature"), body) {
			response.WriteHeader(400)
			return
		}
		// Keep the event under its id, once, and answer. Work on it afterwards.
		fmt.Println(string(body))
		response.WriteHeader(204)
	}
	log.Fatal(http.ListenAndServe("127.0.0.1:"+port, http.HandlerFunc(webhooks)))
}
