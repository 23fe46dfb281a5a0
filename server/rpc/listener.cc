#include "server/rpc/listener.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gemmd {
namespace {

constexpr int kBacklog = 1024;
constexpr int kRetryMs = 50;  // after an error of accept that may pass

// Of an IPv4 or IPv6 socket; -1 when `fd` is none.
int LocalPort(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return -1;
  if (name.ss_family == AF_INET) return ntohs(reinterpret_cast<sockaddr_in*>(&name)->sin_port);
  if (name.ss_family == AF_INET6) return ntohs(reinterpret_cast<sockaddr_in6*>(&name)->sin6_port);
  return -1;
}

// A listening socket; -1 with errno.
int BindOne(const addrinfo& address, int port) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int on = 1, off = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ai_family == AF_INET6) {
    // "[::]" also takes IPv4; a socket of one address never does.
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  }
  sockaddr_storage name{};
  std::memcpy(&name, address.ai_addr, address.ai_addrlen);
  if (address.ai_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&name)->sin_port = htons(static_cast<uint16_t>(port));
  } else {
    reinterpret_cast<sockaddr_in6*>(&name)->sin6_port = htons(static_cast<uint16_t>(port));
  }
  if (bind(fd, reinterpret_cast<const sockaddr*>(&name), address.ai_addrlen) == 0 &&
      listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

void Close(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

}  // namespace

StatusOr<std::unique_ptr<Listener>> Listener::Bind(const std::string& host, int port,
                                                   spdlog::logger* log) {
  const std::string wanted = host + ":" + std::to_string(port);
  const auto refuse = [&wanted](const std::string& why) {
    return FailedPrecondition("cannot listen on " + wanted + " for gRPC: " + why)
        .WithField("listen");
  };
  const bool bracketed = host.size() > 2 && host.front() == '[' && host.back() == ']';
  const std::string name = bracketed ? host.substr(1, host.size() - 2) : host;
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0) {
    return refuse(gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> addresses(found, freeaddrinfo);
  std::vector<int> sockets;
  int error = EADDRNOTAVAIL;
  for (const addrinfo* address = found; address != nullptr; address = address->ai_next) {
    if (address->ai_family != AF_INET && address->ai_family != AF_INET6) continue;
    const int fd = BindOne(*address, sockets.empty() ? port : LocalPort(sockets.front()));
    if (fd >= 0) {
      sockets.push_back(fd);
      continue;
    }
    error = errno;
    // A host without IPv6 may still name itself by it.
    if (error == EADDRNOTAVAIL || error == EAFNOSUPPORT) continue;
    for (int& bound : sockets) Close(&bound);
    return refuse(std::strerror(error));
  }
  if (sockets.empty()) return refuse(std::strerror(error));
  const int bound = LocalPort(sockets.front());
  return std::unique_ptr<Listener>(new Listener(std::move(sockets), bound, log));
}

Listener::Listener(std::vector<int> sockets, int port, spdlog::logger* log)
    : sockets_(std::move(sockets)), port_(port), log_(log) {}

Listener::~Listener() {
  Stop();
  for (int& socket : sockets_) Close(&socket);
}

void Listener::Start(int fd_limit, Take take) {
  fd_limit_ = fd_limit;
  take_ = std::move(take);
  if (pipe2(wake_, O_CLOEXEC) != 0) log_->error("no pipe: {}", std::strerror(errno));
  spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  thread_ = std::thread([this] { Loop(); });
}

void Listener::Stop() {
  if (!thread_.joinable()) return;
  Close(&wake_[1]);
  thread_.join();
  for (int& socket : sockets_) Close(&socket);
  Close(&wake_[0]);
  Close(&spare_);
}

void Listener::Loop() {
  std::vector<pollfd> waiting;
  for (const int socket : sockets_)
    waiting.push_back({.fd = socket, .events = POLLIN, .revents = 0});
  waiting.push_back({.fd = wake_[0], .events = POLLIN, .revents = 0});
  for (;;) {
    if (poll(waiting.data(), waiting.size(), -1) < 0) continue;
    if (waiting.back().revents != 0) return;
    for (const pollfd& ready : waiting) {
      if (ready.revents != 0) AcceptAll(ready.fd);
    }
  }
}

void Listener::AcceptAll(int socket) {
  for (;;) {
    const int fd = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0) {
      if (fd >= fd_limit_) {
        close(fd);
        NoteShed();
        continue;
      }
      if (spare_ < 0) spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
      if (std::exchange(shedding_, false)) log_->info("connections are taken again");
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      {
        MutexLock lock(mu_);
        taken_.insert(fd);
      }
      take_(fd);
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return;
    if ((errno == EMFILE || errno == ENFILE) && Shed(socket)) continue;
    log_->warn("accept on port {}: {}", port_, std::strerror(errno));
    pollfd wake{.fd = wake_[0], .events = POLLIN, .revents = 0};
    poll(&wake, 1, kRetryMs);
    return;
  }
}

// Closes the connection that waits longest, so that its caller learns of it and the next has its
// turn. False when even that needs a descriptor that is not there.
bool Listener::Shed(int socket) {
  if (spare_ < 0) return false;
  Close(&spare_);
  const int fd = accept4(socket, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd >= 0) close(fd);
  spare_ = open("/dev/null", O_RDONLY | O_CLOEXEC);
  NoteShed();
  return true;
}

void Listener::NoteShed() {
  if (std::exchange(shedding_, true)) return;
  log_->warn("connections are turned away: file descriptors from {} on are kept for the server",
             fd_limit_);
}

std::vector<int> Listener::Connections() const {
  std::vector<int> out;
  MutexLock lock(mu_);
  for (const int fd : taken_) {
    if (LocalPort(fd) == port_) out.push_back(fd);
  }
  return out;
}

int Listener::open_connections() const { return static_cast<int>(Connections().size()); }

int Listener::EndConnections() {
  const std::vector<int> connections = Connections();
  for (const int fd : connections) shutdown(fd, SHUT_RDWR);
  return static_cast<int>(connections.size());
}

}  // namespace gemmd
