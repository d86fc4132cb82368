use std::{net::SocketAddr, time::{Duration, Instant}, task::*, pin::pin, future::Future, convert::Infallible};
use http::*; use tower_layer::Layer; use tower_service::Service;
use tollgate::{*, http::*};
#[derive(Clone)] struct Bare;
impl Service<Request<()>> for Bare { type Response=Response<()>; type Error=Infallible; type Future=std::future::Ready<Result<Response<()>,Infallible>>;
 fn poll_ready(&mut self,_:&mut Context<'_>)->Poll<Result<(),Infallible>>{Poll::Ready(Ok(()))}
 fn call(&mut self,r:Request<()>)->Self::Future{ std::hint::black_box(&r); std::future::ready(Ok(Response::new(())))}}
fn main(){
 let n: usize = std::env::args().nth(1).unwrap().parse().unwrap();
 let calls: usize = std::env::args().nth(2).unwrap().parse().unwrap();
 let l = Limit::new(1<<30, 1_000_000, Duration::from_secs(86400)).unwrap();
 let mut b = Limits::builder(); for i in 0..n.max(1) { b = b.limit(&format!("PerClient{i}"), IdFormat::IpAddress, l).unwrap(); }
 let lim = Limiter::new(b.build());
 let mut lay = RateLimitLayer::builder(&lim);
 if std::env::args().nth(3).is_some() { lay = lay.fields(Fields::none()); }
 for i in 0..n { lay = lay.rule(Rule::new(lim.limit(&format!("PerClient{i}")).unwrap(), extract::client(ClientAddress::new()))); }
 if n > 0 { go(lay.build().unwrap().layer(Bare), calls) } else { go(Bare, calls) }
}
fn go<S,B>(mut s:S, calls:usize) where S:Service<Request<()>,Response=Response<B>,Error=Infallible>{
 let mut best = Duration::MAX; let mut k=0u32;
 for _ in 0..calls/32 { 
  let rs: Vec<_> = (0..32).map(|_|{ k=(k+1)%1024; let [..,x,y]=k.to_be_bytes(); let mut r=Request::new(()); r.extensions_mut().insert(Peer(SocketAddr::from(([10,0,x,y],80)))); r}).collect();
  let t=Instant::now();
  for r in rs { let mut cx=Context::from_waker(Waker::noop()); let _=s.poll_ready(&mut cx); match pin!(s.call(r)).poll(&mut cx) { Poll::Ready(Ok(r)) => {std::hint::black_box(r.status());}, _=>panic!() } }
  best=best.min(t.elapsed()/32);
 }
 println!("{best:?}");
}
